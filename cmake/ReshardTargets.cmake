# One function makes every library of the project, so that warnings, sanitizers and include paths are the same. Build
# times are decided here too. Parsing and instantiating templates, not optimizing, is what a file costs: the headers that
# nearly all files include are precompiled, and many files are compiled as one (RESHARD_UNITY): those of a folder, forty
# of a library in the preset `core`, which is built from nothing more often than anything else, and none in the preset
# `dev`, where one changed file should cost one file.
set(RESHARD_UNITY ON CACHE STRING
    "Compile the files of a folder as one (ON), so many files of a target (a number; 0: all of them), or each alone (OFF)")
option(RESHARD_PRECOMPILE "Precompile the headers of the standard library and of Abseil that most files include" ON)

find_program(RESHARD_CCACHE ccache)
if(RESHARD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Looked up by what a file includes, not by what is left of it after preprocessing: that takes as long as many files
  # need to be compiled, and does not see that a precompiled header has a macro more. What is defined beside precompiled
  # headers does not reach into them. Times of headers count: without them a header that is edited while a file that
  # includes it is compiled is remembered with the result of its old text.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,locale ${RESHARD_CCACHE})
endif()
# -O3 gains nothing but in the kernels that copy and reduce, which ask for it themselves.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()

add_library(reshard_build_flags INTERFACE)
target_compile_options(reshard_build_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(RESHARD_WERROR)
  target_compile_options(reshard_build_flags INTERFACE -Werror)
endif()
# Whether what a mutex guards is used with it only (status/mutex.h).
target_compile_options(reshard_build_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
# GCC 12 warns about its own std::string: "..." + std::string at -O2 (GCC bug 105329).
target_compile_options(reshard_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>>)
# GCC collects garbage from 128 MiB on, again and again, which is a tenth of the time of a file with many others in it.
target_compile_options(reshard_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)
if(NOT RESHARD_UNITY STREQUAL "OFF")
  # GCC takes the hidden types of a .cc file that another includes for those of a header.
  target_compile_options(reshard_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(RESHARD_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(reshard_build_flags INTERFACE -fpch-preprocess)  # what ccache needs to know them
endif()
if(RESHARD_SANITIZE)
  target_compile_options(reshard_build_flags INTERFACE -fsanitize=${RESHARD_SANITIZE} -fno-omit-frame-pointer
                                                       -fno-sanitize-recover=all)
  # What the address sanitizer ends with as well; each of these is a check at every access.
  target_compile_options(reshard_build_flags INTERFACE -fno-sanitize=null,object-size,vptr)
  # Sanitized code confuses GCC's flow analysis; the release build has the warning.
  target_compile_options(reshard_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(reshard_build_flags INTERFACE -fsanitize=${RESHARD_SANITIZE})
endif()

set(RESHARD_PRECOMPILED <algorithm> <array> <cstddef> <cstdint> <cstring> <functional> <map> <memory> <mutex> <numeric> <optional>
                        <string> <string_view> <utility> <vector> [["absl/container/flat_hash_map.h"]] [["absl/status/status.h"]]
                        [["absl/status/statusor.h"]] [["absl/strings/str_cat.h"]] [["absl/strings/str_join.h"]]
                        [["absl/types/span.h"]])
set(RESHARD_LESS_OPTIMIZED "")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(RESHARD_LESS_OPTIMIZED -O1)
endif()
# reshard_precompile(TARGET HEADER...): gives the target these headers precompiled, beside those of every target.
function(reshard_precompile target)
  if(RESHARD_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${RESHARD_PRECOMPILED} ${ARGN})
  endif()
endfunction()
# One compilation serves the targets that want no headers beside those of every target and are compiled with the same
# options: reshard_share_precompiled(TARGET OPTION...).
function(reshard_share_precompiled target)
  if(RESHARD_PRECOMPILE)
    string(MAKE_C_IDENTIFIER "reshard_precompiled${ARGN}" shared)
    if(NOT TARGET ${shared})
      file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cc "")
      add_library(${shared} OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
      target_compile_features(${shared} PUBLIC cxx_std_20)
      target_compile_options(${shared} PRIVATE ${ARGN})
      target_link_libraries(${shared} PRIVATE absl::status absl::statusor absl::strings absl::flat_hash_map reshard_build_flags)
      reshard_precompile(${shared})
    endif()
    target_precompile_headers(${target} REUSE_FROM ${shared})
  endif()
endfunction()

# reshard_unity(TARGET): its files are compiled together. Two files of a target must therefore not both have a
# hidden name that means different things; the presets `dev` and `debug` compile each file alone.
function(reshard_unity target)
  if(RESHARD_UNITY MATCHES "^[0-9]+$")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${RESHARD_UNITY})
  elseif(RESHARD_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source NORMALIZE)
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      string(MAKE_C_IDENTIFIER ${folder} group)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endforeach()
  endif()
endfunction()

# reshard_library(NAME [COMPUTES|READS] SOURCES ... PUBLIC ... PRIVATE ...): target reshard_NAME, alias reshard::NAME.
# COMPUTES: what users spend their time in. Nothing else is optimized beyond -O1: for code that reads and writes files
# more makes no difference that bench_checkpoint shows, and costs a third of the time to compile it.
# COMPUTES, READS: what tests spend their time in. In a sanitized build nothing else is optimized at all, since a file
# compiles in a third of the time without.
function(reshard_library name)
  cmake_parse_arguments(arg "COMPUTES;READS" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(reshard_${name} STATIC ${arg_SOURCES})
  add_library(reshard::${name} ALIAS reshard_${name})
  set_target_properties(reshard_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(reshard_${name} PUBLIC cxx_std_20)
  target_include_directories(reshard_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:include>
                                             PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(reshard_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:reshard_build_flags>)
  set(options "")
  if(RESHARD_SANITIZE AND (arg_COMPUTES OR arg_READS))
    set(options -O1)
  elseif(NOT RESHARD_SANITIZE AND NOT arg_COMPUTES)
    set(options ${RESHARD_LESS_OPTIMIZED})
  endif()
  target_compile_options(reshard_${name} PRIVATE ${options})
  reshard_share_precompiled(reshard_${name} ${options})
  reshard_unity(reshard_${name})
endfunction()
