// Random numbers from the system, for names that no other process may have.
#ifndef RESHARD_RUNTIME_HOST_RANDOM_H_
#define RESHARD_RUNTIME_HOST_RANDOM_H_

#include <cstdint>

namespace reshard::host {

// 64 bits that no other process can guess. Not std::random_device: in a libstdc++ that is linked statically it asks for
// the newest C library.
uint64_t Random64();

}  // namespace reshard::host

#endif  // RESHARD_RUNTIME_HOST_RANDOM_H_
