# cmake -D SOURCE_DIR=... -D OUTPUT=... -P commit.cmake: writes Commit() to OUTPUT, if it has changed.
set(commit unknown)
if(EXISTS ${SOURCE_DIR}/.git)
  # Not of a repository around an unpacked archive.
  execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --abbrev=12 --dirty=+ --match= OUTPUT_VARIABLE described
                  RESULT_VARIABLE code OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(code EQUAL 0 AND described)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "tools/reshard/doctor/commit.h"

namespace reshard::doctor {

const char* Commit() { return "@commit@"; }

}  // namespace reshard::doctor
]])
