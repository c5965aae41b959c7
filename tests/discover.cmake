# Runs after a test program is linked (cmake -P): lists its Catch2 test cases and writes a file in which each one is a
# CTest test. A test case carries the label FOLDER, and the label slow instead when it is tagged [slow], so that
# `ctest -L layout` is quick and `ctest -L slow` is everything long. One that ends with RESHARD_SKIP counts as skipped.
#   PROGRAM, PREFIX, FOLDER, VERSION (of Catch2), OUT
set(script "")
foreach(kind quick slow)
  if(kind STREQUAL slow)
    set(spec "[slow]")
    set(labels "slow")
    set(timeout 7200)
  else()
    set(spec "~[slow]")
    set(labels "${FOLDER}")
    set(timeout 600)
  endif()
  # Version 3 of Catch2 calls it otherwise.
  if(VERSION GREATER_EQUAL 3)
    set(list --list-tests --verbosity quiet)
    set(some "")  # to run no test is an error by itself
  else()
    set(list --list-test-names-only)
    set(some "-w NoTests")
  endif()
  execute_process(COMMAND "${PROGRAM}" "${spec}" ${list} OUTPUT_VARIABLE names ERROR_VARIABLE errors RESULT_VARIABLE count)
  # Catch2 v2 returns the number of tests listed, cut to a byte: only what did not come from main() is an error.
  if(NOT count MATCHES "^[0-9]+$")
    message(FATAL_ERROR "${PROGRAM} cannot list its tests: ${count}\n${names}${errors}")
  endif()
  string(REPLACE ";" "\\;" names "${names}")
  string(REPLACE "\n" ";" names "${names}")
  foreach(name IN LISTS names)
    string(STRIP "${name}" name)
    if(name STREQUAL "")
      continue()
    endif()
    # What Catch2 reads as syntax in a test spec.
    string(REGEX REPLACE "([][,\\\\\"*~])" "\\\\\\1" escaped "${name}")
    string(APPEND script "add_test([==[${PREFIX}${name}]==] [==[${PROGRAM}]==] [==[${escaped}]==] ${some})\n"
                         "set_tests_properties([==[${PREFIX}${name}]==] PROPERTIES LABELS \"${labels}\" TIMEOUT ${timeout} "
                         "SKIP_REGULAR_EXPRESSION \"test skipped: \")\n")
  endforeach()
endforeach()
file(WRITE "${OUT}" "${script}")
