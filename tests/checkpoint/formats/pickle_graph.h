// Whether two readings of a pickle are the same graph of values.
#ifndef RESHARD_TESTS_CHECKPOINT_FORMATS_PICKLE_GRAPH_H_
#define RESHARD_TESTS_CHECKPOINT_FORMATS_PICKLE_GRAPH_H_

#include <cstdint>
#include <string>

#include "checkpoint/formats/pickle/machine.h"

namespace reshard::testing {

// Empty when they are: the same kinds, numbers, texts, members, items, names and states, in the same order, and what is
// one object in the one is one object in the other. Otherwise what differs. A float is compared by its kind alone.
std::string Difference(const pickle::Pickle& a, const pickle::Pickle& b);

// How many objects that can be reached have a shape.
int64_t CountShaped(const pickle::Pickle& pickle);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_FORMATS_PICKLE_GRAPH_H_
