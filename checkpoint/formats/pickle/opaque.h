// What to call a value that is not plain data.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_OPAQUE_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_OPAQUE_H_

#include <string>

#include "checkpoint/formats/pickle/machine.h"

namespace reshard::pickle {

// "an object of hparams.Config", "functools.partial" for what a function makes, "the name torch.float32" for a class, a
// function or a dtype, "the name hparams.Color.RED" for a member of one; for anything else its kind: "a list with such
// values in it". At most a few hundred bytes, which may be any.
std::string KindOfOpaque(const Pickle& pickle, Pickle::Value value);

// "hparams.Config" of a name, "hparams.Color.RED" of a call of getattr with a name and a text, "" of any other value.
std::string NameOfOpaque(const Pickle& pickle, Pickle::Value value);

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_OPAQUE_H_
