// SHA-256, for the digests of fixtures.
#ifndef RESHARD_TESTS_CHECKPOINT_CONVERT_SHA256_H_
#define RESHARD_TESTS_CHECKPOINT_CONVERT_SHA256_H_

#include <string>
#include <string_view>

namespace reshard::testing {

// In hexadecimal.
std::string Sha256(std::string_view data);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_CONVERT_SHA256_H_
