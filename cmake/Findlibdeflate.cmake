# libdeflate (only its CRC-32 is used here). Newer distributions ship a CMake package, which goes first; Debian 12 does
# not. Target: libdeflate::libdeflate.
find_package(libdeflate CONFIG QUIET)
if(TARGET libdeflate::libdeflate_shared AND NOT TARGET libdeflate::libdeflate)
  add_library(libdeflate::libdeflate INTERFACE IMPORTED)
  target_link_libraries(libdeflate::libdeflate INTERFACE libdeflate::libdeflate_shared)
endif()
if(NOT TARGET libdeflate::libdeflate)
  find_path(libdeflate_INCLUDE_DIR libdeflate.h)
  find_library(libdeflate_LIBRARY deflate)
  mark_as_advanced(libdeflate_INCLUDE_DIR libdeflate_LIBRARY)
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(libdeflate REQUIRED_VARS libdeflate_LIBRARY libdeflate_INCLUDE_DIR)
  if(libdeflate_FOUND)
    add_library(libdeflate::libdeflate UNKNOWN IMPORTED)
    set_target_properties(libdeflate::libdeflate PROPERTIES IMPORTED_LOCATION ${libdeflate_LIBRARY}
                                                            INTERFACE_INCLUDE_DIRECTORIES ${libdeflate_INCLUDE_DIR})
  endif()
endif()
