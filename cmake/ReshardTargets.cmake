# One function makes every library of the project, so that warnings, sanitizers and include paths are the same.
find_program(RESHARD_CCACHE ccache)
if(RESHARD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${RESHARD_CCACHE})
endif()

add_library(reshard_build_flags INTERFACE)
target_compile_options(reshard_build_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror)
# GCC 12 warns about its own std::string: "..." + std::string at -O2 (GCC bug 105329).
target_compile_options(reshard_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>>)
if(RESHARD_SANITIZE)
  target_compile_options(reshard_build_flags INTERFACE -fsanitize=${RESHARD_SANITIZE} -fno-omit-frame-pointer
                                                       -fno-sanitize-recover=all)
  # Sanitized code confuses GCC's flow analysis; the release build has the warning.
  target_compile_options(reshard_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(reshard_build_flags INTERFACE -fsanitize=${RESHARD_SANITIZE})
endif()

# reshard_library(NAME SOURCES ... PUBLIC ... PRIVATE ...): target reshard_NAME, alias reshard::NAME.
function(reshard_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(reshard_${name} STATIC ${arg_SOURCES})
  add_library(reshard::${name} ALIAS reshard_${name})
  set_target_properties(reshard_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(reshard_${name} PUBLIC cxx_std_20)
  target_include_directories(reshard_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:include>
                                             PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(reshard_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:reshard_build_flags>)
endfunction()
