# find_package(reshard) support: headers, libraries, the command, and a config file that finds what they need.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY include/reshard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN torch EXCLUDE)
if(TARGET reshard_torch)
  # Not part of the CMake package: it is bound to the LibTorch that it was built with. Python loads it by path.
  install(DIRECTORY include/reshard/torch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reshard)
  install(TARGETS reshard_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # For PYTHONPATH; it finds the library above it.
  install(DIRECTORY python/reshard DESTINATION ${CMAKE_INSTALL_LIBDIR}/python PATTERN __pycache__ EXCLUDE)
endif()
install(TARGETS reshard_layout reshard_json reshard_check reshard_planner reshard_runtime reshard_cuda reshard_nccl reshard_checkpoint reshard_live EXPORT reshardTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT reshardTargets NAMESPACE reshard:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/reshard)
set(reshard_components "layout, check, planner, runtime, cuda, nccl, checkpoint, live")
configure_package_config_file(cmake/reshardConfig.cmake.in ${PROJECT_BINARY_DIR}/reshardConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/reshard)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/reshardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/reshardConfig.cmake ${PROJECT_BINARY_DIR}/reshardConfigVersion.cmake
              cmake/FindxxHash.cmake cmake/Findlibdeflate.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/reshard)
