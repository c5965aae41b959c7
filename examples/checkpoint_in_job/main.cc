// Four training ranks save a model's weights as they hold them; six serving ranks load them, sharded along the other
// dimension and in a different device order. Ranks are threads here; in a multi-process job each process calls Save and
// Load once.
//
//   checkpoint_in_job DIRECTORY        which must not exist yet
#include <cstdint>
#include <cstdio>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/live/load.h"
#include "reshard/live/save.h"
#include "reshard/runtime/local_world.h"

namespace {

constexpr int64_t kRows = 1024, kColumns = 768;

// What rank `position` of a layout holds of a tensor whose element (i, j) is i * kColumns + j.
std::vector<float> Fragment(const reshard::Layout& layout, int64_t position) {
  std::vector<float> values;
  for (const reshard::Interval& rows : layout.Intervals(position, 0)) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (const reshard::Interval& columns : layout.Intervals(position, 1)) {
        for (int64_t j = columns.begin; j < columns.end; ++j) values.push_back(static_cast<float>(i * kColumns + j));
      }
    }
  }
  return values;
}

absl::Status SaveAndLoad(const char* directory) {
  const absl::StatusOr<reshard::Layout> training = reshard::ParseLayout("[<dp,tp>1024, 768]", "{dp:2,tp:2}");
  const absl::StatusOr<reshard::Layout> serving = reshard::ParseLayout("[1024, <gpu,node>768]", "{node:2,gpu:3}");
  if (!training.ok()) return training.status();
  if (!serving.ok()) return serving.status();

  reshard::LocalWorld trainers(4);
  const absl::Status saved = trainers.Run([&](reshard::Communicator& rank) {
    const std::vector<float> weights = Fragment(*training, rank.rank());
    reshard::SaveEntry entry;
    entry.name = "model.weight";
    entry.path = {"model", "weight"};
    entry.layout = *training;
    entry.dtype = reshard::DType::kF32;
    entry.from = reshard::DenseView(weights.data(), entry.dtype, training->LocalShape(rank.rank()));
    return reshard::Save(directory, {&entry, 1}, {}, rank).status();
  });
  if (!saved.ok()) return saved;

  reshard::LocalWorld servers(6);
  return servers.Run([&](reshard::Communicator& rank) -> absl::Status {
    const std::vector<float> wanted = Fragment(*serving, rank.rank());
    std::vector<float> weights(wanted.size());
    const std::vector<int64_t> shape = serving->LocalShape(rank.rank());
    const reshard::LoadEntry entry{"model.weight", *serving,
                                   reshard::DenseView(weights.data(), reshard::DType::kF32, shape)};
    const absl::StatusOr<reshard::LoadSummary> loaded = reshard::Load(directory, {&entry, 1}, {}, rank);
    if (!loaded.ok()) return loaded.status();
    std::printf("rank %d: %d bytes wanted, %d read from files, %d from other ranks\n", static_cast<int>(rank.rank()),
                static_cast<int>(loaded->bytes), static_cast<int>(loaded->read_bytes),
                static_cast<int>(loaded->received_bytes));
    return weights == wanted ? absl::OkStatus() : absl::InternalError("the weights are not those that were saved");
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]);
    return 2;
  }
  const absl::Status status = SaveAndLoad(arguments[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
