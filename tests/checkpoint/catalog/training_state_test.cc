// checkpoint/catalog/training_state.h: what is told by what it is made of, and what stays though it has a word in its
// name.
#include "checkpoint/catalog/training_state.h"

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/torch_save/format.h"
#include "tests/catch.h"

namespace reshard {
namespace {

using Names = std::vector<std::string>;

// A tensor, with a path of as many steps as there are slashes and one more; a value where there is no shape.
struct Entry {
  std::string path;
  std::vector<int64_t> shape = {4, 4};
  DType dtype = DType::kF32;
  bool is_value = false;
};
Entry Value(std::string path) { return {std::move(path), {}, DType::kU8, true}; }

// The names of what is weights.
Names WeightsOf(const std::vector<Entry>& entries) {
  catalog::CatalogBuilder builder(torch_save::kFormat, "c");
  for (const Entry& entry : entries) {
    std::string name = entry.path;
    std::vector<Catalog::PathStep> path;
    size_t begin = 0;
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', begin)) {
      path.emplace_back(name.substr(begin, slash - begin));
      name[slash] = '.';
      begin = slash + 1;
    }
    path.emplace_back(name.substr(begin));
    const absl::Status added =
        entry.is_value ? builder.AddByteItem(name, {}) : builder.AddTensor(name, "x", entry.dtype, entry.shape, false);
    REQUIRE(added.ok());
    builder.AddPath(name, path);
  }
  const Catalog catalog = std::move(builder).BuildUnstored();
  const catalog::TrainingState training(catalog);
  Names weights;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    if (!training.Has(tensor.name)) weights.emplace_back(tensor.name);
  }
  return weights;
}

}  // namespace

TEST_CASE("optimizers are known by their groups and moments, whatever they are called") {
  CHECK(WeightsOf(
            {{"model/a.w"}, {"opt_G/state/0/exp_avg"}, {"opt_G/state/0/step", {}}, Value("opt_G/param_groups/0/lr")}) ==
        Names{"model.a.w"});
  CHECK(WeightsOf({{"a.w"}, {"chained_0.optimizer.state.exp_avg.a.w"}, {"chained_0.optimizer.state.fp32_param.a.w"}}) ==
        Names{"a.w"});
  CHECK(WeightsOf({{"a.w"}, {"optim.state.a.w.momentum_buffer"}, {"optim.state.a.w.step", {}}}) == Names{"a.w"});
  // The checkpoint is one.
  CHECK(WeightsOf({{"state/0/exp_avg"}, Value("param_groups/0/lr"), {"extra"}}) == Names{"extra"});
  // Parts of models that have such names.
  CHECK(WeightsOf({{"optimizer.layers.0.w"},
                   {"net.optim.w"},
                   {"train_state.proj.w"},
                   {"scheduler.w"},
                   {"rng.embed.w"},
                   {"loops.0.w"},
                   {"callbacks.w"},
                   {"cell.state.step.w"}})
            .size() == 8);
}

TEST_CASE("scalers, schedulers, generators and counters are known by their form") {
  CHECK(WeightsOf({{"model/w"}, {"amp/scale", {}}, Value("amp/growth_factor"), Value("amp/backoff_factor")}) ==
        Names{"model.w"});
  CHECK(WeightsOf({{"model/w"}, {"sched/last", {}}, Value("sched/last_epoch"), Value("sched/_step_count")}) ==
        Names{"model.w"});
  CHECK(WeightsOf({{"model/w"},
                   {"torch_state", {5056}, DType::kU8},
                   {"cuda_rng_state/0", {16}, DType::kU8},
                   {"step", {}, DType::kI64},
                   {"model/bn.num_batches_tracked", {}, DType::kI64}}) ==
        Names{"model.w", "model.bn.num_batches_tracked"});
  CHECK(WeightsOf({{"w"}, {"train_state.step", {}, DType::kI32}, {"callbacks.best", {}}}) == Names{"w"});
  // Bytes that are not a generator's, and floats below a name with `rng`.
  CHECK(WeightsOf({{"packed", {4096}, DType::kU8}, {"rng.scale", {16}}}).size() == 2);
  CHECK(WeightsOf({{"state_dict/w"}, {"loops/x"}, {"ema/w"}, Value("pytorch-lightning_version")}) ==
        Names{"state_dict.w"});
}

}  // namespace reshard
