# find_package(reshard) support: headers, libraries, the command, and a config file that finds what they need.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(cmake/PkgConfig.cmake)

set(reshard_components layout check planner runtime cuda nccl checkpoint live)
set(reshard_targets ${reshard_components})
list(TRANSFORM reshard_targets PREPEND reshard_)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/reshard)

install(DIRECTORY include/reshard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development PATTERN torch EXCLUDE PATTERN mpi EXCLUDE)
install(TARGETS ${reshard_targets} reshard_json reshard_page EXPORT reshardTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT reshardTargets NAMESPACE reshard:: DESTINATION ${package_folder} COMPONENT development)
reshard_pkg_config(json page ${reshard_components})

if(TARGET reshard_torch)
  # Bound to the PyTorch that it was built with, which the component `torch` looks for and compares.
  install(DIRECTORY include/reshard/torch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reshard COMPONENT torch)
  install(TARGETS reshard_torch EXPORT reshardTorchTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT torch)
  install(EXPORT reshardTorchTargets NAMESPACE reshard:: DESTINATION ${package_folder} COMPONENT torch)
  install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libreshard_torch.built-for DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT torch)
  install(FILES cmake/FindLibTorch.cmake DESTINATION ${package_folder} COMPONENT torch)
  list(APPEND reshard_components torch)
endif()
if(TARGET reshard_mpi)
  # Bound to the MPI that it was built with.
  install(DIRECTORY include/reshard/mpi DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reshard COMPONENT mpi)
  install(TARGETS reshard_mpi EXPORT reshardMpiTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)
  install(EXPORT reshardMpiTargets NAMESPACE reshard:: DESTINATION ${package_folder} COMPONENT mpi)
  list(APPEND reshard_components mpi)
endif()
if(TARGET reshard_python AND NOT SKBUILD)
  # For PYTHONPATH; it finds the library above it.
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/reshard DESTINATION ${CMAKE_INSTALL_LIBDIR}/python COMPONENT torch PATTERN __pycache__ EXCLUDE)
endif()

list(JOIN reshard_components ", " reshard_components)
configure_package_config_file(cmake/reshardConfig.cmake.in ${PROJECT_BINARY_DIR}/reshardConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
# Before 1.0 a minor version may change interfaces.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/reshardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/reshardConfig.cmake ${PROJECT_BINARY_DIR}/reshardConfigVersion.cmake
              cmake/FindxxHash.cmake cmake/Findlibdeflate.cmake
        DESTINATION ${package_folder} COMPONENT development)
