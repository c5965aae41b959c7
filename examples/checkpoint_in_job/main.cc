// A job saves its weights as four training ranks hold them; six serving ranks load them, cut along the other dimension
// and in another device order. Ranks are threads here; in a job of processes each calls Save and Load once.
//
//   checkpoint_in_job DIRECTORY        a directory that is not there yet
#include <cstdint>
#include <cstdio>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/runtime/local_world.h"
#include "reshard/state/load.h"
#include "reshard/state/save.h"

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

absl::StatusOr<reshard::Layout> Parse(const char* mesh, const char* layout) {
  absl::StatusOr<reshard::Mesh> parsed = reshard::ParseMesh(mesh);
  if (!parsed.ok()) return parsed.status();
  return reshard::ParseLayout(layout, std::make_shared<const reshard::Mesh>(*std::move(parsed)));
}

absl::Status SaveAndLoad(const char* directory) {
  const char* const training_mesh = "{dp:2,tp:2}";
  const char* const training_layout = "[<dp,tp>1024, 768]";
  const char* const serving_mesh = "{node:2,gpu:3}";
  const char* const serving_layout = "[1024, <gpu,node>768]";
  const absl::StatusOr<reshard::Layout> training = Parse(training_mesh, training_layout);
  const absl::StatusOr<reshard::Layout> serving = Parse(serving_mesh, serving_layout);
  if (!training.ok()) return training.status();
  if (!serving.ok()) return serving.status();

  reshard::LocalWorld trainers(4);
  const absl::Status saved = trainers.Run([&](reshard::Communicator& rank) {
    const std::vector<float> weights = Fragment(*training, rank.rank());
    reshard::SaveEntry entry;
    entry.name = "model.weight";
    entry.path = {"model", "weight"};
    entry.mesh = training_mesh;
    entry.layout = training_layout;
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
    const reshard::LoadEntry entry{"model.weight", serving_mesh, serving_layout,
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
