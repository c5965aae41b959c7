// The parameters of a model, as the files of DeepSpeed list them.
#ifndef RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_PARAMETERS_H_
#define RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_PARAMETERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/archive.h"

namespace reshard::deepspeed {

using Value = pickle::Pickle::Value;

// A dict: itself, or what an OrderedDict has in it. Nothing for anything else, or if there is no value.
std::optional<Value> DictOf(const pickle::Pickle& values, std::optional<Value> value);
// What a dict has under a key, the last that is set.
std::optional<Value> Member(const pickle::Pickle& values, std::optional<Value> dict, std::string_view key);
// The members of a list or a tuple; none of anything else.
std::vector<Value> ListOf(const pickle::Pickle& values, std::optional<Value> list);

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count = 0;    // of elements
  int64_t padding = 0;  // elements of the buffer after it
};
using Group = std::vector<Parameter>;

// {"NAME": torch.Size([2, 3]), ...}, in its order. DataLoss: not of that form; `what` is what it is called.
absl::StatusOr<Group> ReadGroup(const torch_save::Archive& archive, Value value, std::string_view what);

}  // namespace reshard::deepspeed

#endif  // RESHARD_CHECKPOINT_FORMATS_DEEPSPEED_PARAMETERS_H_
