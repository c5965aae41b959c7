// Plain data of one pickle, written as a pickle of its own: what Python's own numbers, texts and containers are.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_PLAIN_DATA_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_PLAIN_DATA_H_

#include <cstddef>
#include <optional>
#include <string>

#include "checkpoint/formats/pickle/machine.h"

namespace reshard::pickle {

// A pickle of an equal value: None, bools, ints, floats, texts, bytes, and tuples, lists, sets and dicts of those. What
// only wraps such values becomes what it wraps: a frozenset a set, a deque a list, an OrderedDict, Counter, defaultdict
// or Namespace a dict, a bytearray bytes, a NumPy scalar its number and an array lists of numbers. What was shared is
// written again each time. The same value always gives the same bytes. Nothing where it contains anything else
// (classes, functions, objects), or where more than `most_bytes` would be needed, as for a container that contains
// itself.
std::optional<std::string> PlainData(const Pickle& pickle, Pickle::Value value, size_t most_bytes);

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_PLAIN_DATA_H_
