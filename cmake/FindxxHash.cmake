# xxHash, which Debian and Ubuntu ship without a CMake package. Target: xxHash::xxhash. xxHash_DISPATCHES: whether the
# library has functions that choose at run time, by the vectors of the processor.
find_path(xxHash_INCLUDE_DIR xxhash.h)
find_library(xxHash_LIBRARY xxhash)
mark_as_advanced(xxHash_INCLUDE_DIR xxHash_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(xxHash REQUIRED_VARS xxHash_LIBRARY xxHash_INCLUDE_DIR)
if(xxHash_FOUND AND NOT TARGET xxHash::xxhash)
  add_library(xxHash::xxhash UNKNOWN IMPORTED)
  set_target_properties(xxHash::xxhash PROPERTIES IMPORTED_LOCATION ${xxHash_LIBRARY}
                                                  INTERFACE_INCLUDE_DIRECTORIES ${xxHash_INCLUDE_DIR})
  include(CheckSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES xxHash::xxhash)
  check_source_compiles(CXX "#include <xxh_x86dispatch.h>\nint main() { return XXH3_64bits(nullptr, 0) == 0; }"
                        xxHash_DISPATCHES)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()
