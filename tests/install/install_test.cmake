# Builds and runs tests/install/consumer as a user would (cmake -P).
#   KIND=package       from `cmake --install` of the build into a fresh prefix; all installed headers compile
#   KIND=subdirectory  from the sources with add_subdirectory
# Also: KIND, SOURCE_DIR, BUILD_DIR, WORK_DIR, GENERATOR, COMPILER, LAUNCHER
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message("${output}")
    message(FATAL_ERROR "This ended with ${result}: ${command}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(configure ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/consumer -B ${WORK_DIR}/build -G ${GENERATOR}
              -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
file(REMOVE_RECURSE ${WORK_DIR})
if(KIND STREQUAL package)
  set(prefix ${WORK_DIR}/prefix)
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
  run(${configure} -D CMAKE_PREFIX_PATH=${prefix})
  file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*.h)
  # Those need LibTorch, which a consumer of the package need not have.
  list(FILTER headers EXCLUDE REGEX "^reshard/torch/")
  if(NOT headers)
    message(FATAL_ERROR "no header was installed")
  endif()
  # That each compiles alone is tested where they come from (rooms_test.py); here, that none is missing.
  list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE lines)
  list(JOIN lines "" lines)
  file(WRITE ${WORK_DIR}/headers.cc "${lines}${lines}")
  run(${COMPILER} -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I ${prefix}/include ${WORK_DIR}/headers.cc)
  file(STRINGS ${WORK_DIR}/build/CMakeCache.txt found REGEX "^reshard_DIR:")
  if(NOT found MATCHES "=${prefix}/")
    message(FATAL_ERROR "find_package found another reshard: ${found}")
  endif()
else()
  # Not optimized: this is about targets and paths, and the library is built anew for it.
  run(${configure} -D CMAKE_BUILD_TYPE=Debug -D RESHARD_SOURCE_DIR=${SOURCE_DIR} -D RESHARD_GPU_KERNELS=OFF)
endif()
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --target consumer --parallel 1)
run(${WORK_DIR}/build/consumer)
if(NOT output MATCHES "reshard\\.plan/1")
  message(FATAL_ERROR "the consumer printed no plan:\n${output}")
endif()
message("${output}")
if(KIND STREQUAL package)
  # An example, as its reader builds it.
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/checkpoint_in_job -B ${WORK_DIR}/example -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release
      -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -D CMAKE_PREFIX_PATH=${prefix})
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/example --parallel 1)
  run(${WORK_DIR}/example/checkpoint_in_job ${WORK_DIR}/example/saved)
  message("${output}")
endif()
if(KIND STREQUAL package AND EXISTS ${BUILD_DIR}/bin/reshard)
  run(${prefix}/bin/reshard plan "{X:2}" "[<X>4]" "[4]" --json)
endif()
