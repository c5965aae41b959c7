// Python's bytes, in the ways in which pickles write them.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_ENCODED_BYTES_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_ENCODED_BYTES_H_

#include <cstddef>
#include <optional>
#include <string>

#include "checkpoint/formats/pickle/machine.h"

namespace reshard::pickle {

// Reads bytes, a call of _codecs.encode with a text and "latin1", which is how protocol 2 writes them, and a
// bytearray made of either. Nothing for any other value, and where there are more than `most`.
std::optional<std::string> BytesOf(const Pickle& pickle, Pickle::Value value, size_t most);

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_ENCODED_BYTES_H_
