// Checkpoints: reading `.metadata` against Python's pickle.load of the same file, in turns; asking whether chunks cover
// their tensor; planning a conversion, which reads no data.
//
//   bench_checkpoint [Python with torch] [tensors, default 200] [chunks of each, default 5000] [turns, default 3]
//
// Wanted: at least 20 times as fast as pickle.load, for a catalog that is checked and indexed; no plan longer than 1 s.
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/catalog/cover.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/output/dcp_output.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/source/chunk_index.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/rules.h"
#include "tests/bench/median.h"

namespace reshard {
namespace {

using bench::Median;

template <typename F>
double Seconds(const F& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Peak memory of this process so far, MiB; nothing (-1) where /proc does not say.
double PeakMebibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes / 1024;
  }
  return -1;
}

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  return pclose(pipe) == 0 ? output : "";
}

// A directory that is gone with the object.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "reshard_bench_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int BenchMetadata(const std::string& python, const std::string& tensors, const std::string& chunks, int turns) {
  const Folder folder;
  const std::string script =
      absl::StrCat(python, " ", RESHARD_SOURCE_DIR, "/tests/bench/make_metadata.py ", folder.path());
  const double bytes = std::atof(OutputOf(absl::StrCat(script, " ", tensors, " ", chunks)).c_str());
  if (bytes == 0) {
    std::fprintf(stderr, "%s could not write the metadata\n", python.c_str());
    return 1;
  }
  std::printf(".metadata of %s x %s chunks, %.1f MB\n", tensors.c_str(), chunks.c_str(), bytes / 1e6);
  const double before = PeakMebibytes();
  std::vector<double> ours;
  std::vector<double> theirs;
  absl::StatusOr<Catalog> catalog = absl::UnknownError("");
  for (int i = 0; i < turns; ++i) {
    theirs.push_back(std::atof(OutputOf(script).c_str()));
    catalog = absl::UnknownError("");  // what the turn before read is gone
    ours.push_back(Seconds([&] { catalog = ReadCatalog(folder.path()); }));
    if (!catalog.ok()) {
      std::fprintf(stderr, "%s\n", catalog.status().ToString().c_str());
      return 1;
    }
    std::printf("  turn %d: pickle.load %.2f s, ReadCatalog %.3f s\n", i + 1, theirs.back(), ours.back());
  }
  std::printf("  medians: pickle.load %.2f s, ReadCatalog %.3f s, ratio %.1f (wanted: 20)\n", Median(theirs),
              Median(ours), Median(theirs) / Median(ours));
  std::printf("  peak memory (VmHWM): %.0f MiB, %.0f before\n", PeakMebibytes(), before);
  const double cover = Seconds([&] {
    for (const Catalog::Tensor& tensor : catalog->tensors()) {
      if (!catalog->CheckCover(tensor).ok()) std::abort();
    }
  });
  std::printf("  CheckCover of all of them: %.3f s\n", cover);
  return 0;
}

void BenchCover(const char* name, int64_t rows, int64_t columns, const std::vector<int64_t>& shape) {
  std::vector<int64_t> boxes;
  const int64_t height = shape[0] / rows, width = shape[1] / columns;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) boxes.insert(boxes.end(), {r * height, c * width, height, width});
  }
  bool covered = false;
  const double seconds = Seconds([&] { covered = !catalog::FindCoverFault(shape, boxes, rows * columns).has_value(); });
  std::printf("%s: %.4f s%s\n", name, seconds, covered ? "" : " NOT COVERED");
}

// `tensors` tensors of that shape, each stored in rows x columns chunks of (nearly) the same size.
Catalog GridCatalog(int64_t tensors, const std::vector<int64_t>& shape, int64_t rows, int64_t columns) {
  const Folder folder;
  catalog::CatalogBuilder builder(dcp::kFormat, folder.path());
  const int32_t file = *builder.AddFile("__0_0.distcp");
  std::ofstream(folder.path() + "/__0_0.distcp") << "0";
  for (int64_t t = 0; t < tensors; ++t) {
    bool ok = builder.AddTensor(absl::StrCat("layers.", t, ".weight"), "torch.float32", DType::kF32, shape, false).ok();
    for (int64_t i = 0; i < rows * columns && ok; ++i) {
      const int64_t r = i / columns, c = i % columns;
      const int64_t top = shape[0] * r / rows, left = shape[1] * c / columns;
      const int64_t bottom = shape[0] * (r + 1) / rows, right = shape[1] * (c + 1) / columns;
      ok = builder.AddChunk({top, left}, {bottom - top, right - left}, {file, 0, 0}).ok();
    }
    if (!ok) std::abort();
  }
  absl::StatusOr<Catalog> catalog = std::move(builder).Build();
  if (!catalog.ok()) std::abort();
  return *std::move(catalog);
}

// How many pieces of how many elements of chunks the box consists of, found as a conversion finds them.
struct Found {
  int64_t pieces = 0;
  int64_t elements = 0;

  void Add(const Catalog& catalog, const Catalog::Tensor& tensor, const source::ChunkIndex& index,
           absl::Span<const int64_t> offset, absl::Span<const int64_t> size) {
    for (const int64_t number : index.Overlapping(offset, size)) {
      const Catalog::Chunk chunk = catalog.chunk(tensor, number);
      int64_t common = 1;
      for (size_t d = 0; d < offset.size(); ++d) {
        common *= std::min(offset[d] + size[d], chunk.offset[d] + chunk.size[d]) - std::max(offset[d], chunk.offset[d]);
      }
      ++pieces;
      elements += common;
    }
  }
};

void BenchPlan(const char* name, int64_t tensors, const std::vector<int64_t>& shape, int64_t rows, const char* mesh,
               const char* layout) {
  const Catalog catalog = GridCatalog(tensors, shape, rows, 1);
  const absl::StatusOr<LayoutRules> rules = LayoutRules::ForAll(mesh, layout);
  if (!rules.ok()) std::abort();
  Found found;
  size_t boxes = 0;
  const double seconds = Seconds([&] {
    const absl::StatusOr<output::OutputPlan> plan =
        output::OutputPlan::Make(catalog, output::MakeDcpOutput(output::PlacingOf(*rules)));
    if (!plan.ok()) std::abort();
    boxes = plan->pieces().size();
    std::optional<source::ChunkIndex> index;
    int64_t indexed = -1;
    for (const output::OutputPlan::OutputPiece& piece : plan->pieces()) {
      const Catalog::Tensor& tensor = catalog.tensors()[piece.tensor];
      if (piece.tensor != indexed) index.emplace(catalog, tensor);
      indexed = piece.tensor;
      found.Add(catalog, tensor, *index, plan->offset(piece), plan->size(piece));
    }
  });
  std::printf("%s: %zu boxes of %lld pieces planned in %.3f s (wanted: 1)%s\n", name, boxes,
              static_cast<long long>(found.pieces), seconds,
              found.elements == tensors * shape[0] * shape[1] ? "" : " NOT ALL");
}

// The columns of one tall tensor, cut anew.
void BenchColumns(int64_t saved, int64_t wanted) {
  const std::vector<int64_t> shape = {1 << 20, 8192};
  const Catalog catalog = GridCatalog(1, shape, 1, saved);
  const Catalog::Tensor& tensor = catalog.tensors()[0];
  Found found;
  const double seconds = Seconds([&] {
    const source::ChunkIndex index(catalog, tensor);
    for (int64_t i = 0; i < wanted; ++i) {
      const int64_t left = shape[1] * i / wanted;
      found.Add(catalog, tensor, index, {0, left}, {shape[0], shape[1] * (i + 1) / wanted - left});
    }
  });
  std::printf("%lld columns from %lld: %lld pieces found in %.4f s (wanted: 1)%s\n", static_cast<long long>(wanted),
              static_cast<long long>(saved), static_cast<long long>(found.pieces), seconds,
              found.elements == shape[0] * shape[1] ? "" : " NOT ALL");
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) {
  using namespace reshard;
  const std::string python = argc > 1 ? argv[1] : RESHARD_SOURCE_DIR "/build/venv/bin/python";
  BenchCover("cover, 4096 columns of [1048576, 8192]", 1, 4096, {1 << 20, 8192});
  BenchCover("cover, 4096 rows", 4096, 1, {1 << 20, 8192});
  BenchCover("cover, grid 1024 x 1024", 1024, 1024, {1 << 20, 8192});
  BenchPlan("100,000 chunks, rows to other rows", 100, {64000, 4096}, 1000, "{x:96}", "[<x>, *]");
  BenchPlan("100,000 chunks, rows to columns", 100, {64000, 4096}, 1000, "{x:8}", "[*, <x>]");
  BenchPlan("100,000 chunks of one tensor, rows to a grid", 1, {6400000, 4096}, 100000, "{x:64,y:8}", "[<x>, <y>]");
  BenchColumns(4096, 4000);
  return BenchMetadata(python, argc > 2 ? argv[2] : "200", argc > 3 ? argv[3] : "5000",
                       argc > 4 ? std::max(1, std::atoi(argv[4])) : 3);
}
