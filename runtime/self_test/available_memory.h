// How much memory this process could still take.
#ifndef RESHARD_RUNTIME_SELF_TEST_AVAILABLE_MEMORY_H_
#define RESHARD_RUNTIME_SELF_TEST_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string_view>

namespace reshard::self_test {

// Bytes that can be used without swapping: what the kernel calls available, or what is left of the control group's
// limit if that is less. The largest int64 if the machine does not tell.
int64_t AvailableMemoryBytes();

// The value of "MemAvailable:" in the text of /proc/meminfo, in bytes, or -1.
int64_t ParseMemAvailable(std::string_view meminfo);

}  // namespace reshard::self_test

#endif  // RESHARD_RUNTIME_SELF_TEST_AVAILABLE_MEMORY_H_
