// Checkpoints: reading `.metadata` against Python's pickle.load of the same file in the same run, and asking whether
// chunks cover their tensor.
//
//   bench_checkpoint [Python with torch] [tensors, default 200] [chunks of each, default 5000]
//
// Wanted: at least 20 times as fast as pickle.load, for a catalog that is checked and indexed.
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/job/cover.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {
namespace {

template <typename F>
double Seconds(const F& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Peak memory of this process, MiB.
double PeakMebibytes() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  return pclose(pipe) == 0 ? output : "";
}

int BenchMetadata(const std::string& python, const std::string& tensors, const std::string& chunks) {
  std::string folder = std::filesystem::temp_directory_path() / "reshard_bench_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const std::string made = OutputOf(absl::StrCat(python, " ", RESHARD_SOURCE_DIR, "/tests/bench/make_metadata.py ",
                                                 folder, " ", tensors, " ", chunks));
  int result = 1;
  if (made.empty()) {
    std::fprintf(stderr, "%s could not write the metadata\n", python.c_str());
  } else {
    const nlohmann::json theirs = nlohmann::json::parse(made);
    const double before = PeakMebibytes();
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      absl::StatusOr<Catalog> catalog = absl::UnknownError("");
      const double seconds = Seconds([&] { catalog = ReadCatalog(folder); });
      if (!catalog.ok()) {
        std::fprintf(stderr, "%s\n", catalog.status().ToString().c_str());
        break;
      }
      best = i == 0 ? seconds : std::min(best, seconds);
      if (i == 4) {
        const double load = theirs["load_s"];
        std::printf(
            ".metadata of %s x %s chunks, %.1f MB: pickle.load %.2f s, ReadCatalog %.3f s, ratio %.1f (wanted: 20)\n",
            tensors.c_str(), chunks.c_str(), theirs["bytes"].get<double>() / 1e6, load, best, load / best);
        std::printf("peak memory of the reader: %.0f MiB more than before\n", PeakMebibytes() - before);
        const double cover = Seconds([&] {
          for (const Catalog::Tensor& tensor : catalog->tensors()) {
            if (!catalog->CheckCover(tensor).ok()) std::abort();
          }
        });
        std::printf("CheckCover of all of them: %.3f s\n", cover);
        result = 0;
      }
    }
  }
  std::filesystem::remove_all(folder);
  return result;
}

void BenchCover(const char* name, int64_t rows, int64_t columns, const std::vector<int64_t>& shape) {
  std::vector<int64_t> boxes;
  const int64_t height = shape[0] / rows, width = shape[1] / columns;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) boxes.insert(boxes.end(), {r * height, c * width, height, width});
  }
  bool covered = false;
  const double seconds = Seconds([&] { covered = !FindCoverFault(shape, boxes, rows * columns).has_value(); });
  std::printf("%s: %.4f s%s\n", name, seconds, covered ? "" : " NOT COVERED");
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) {
  using namespace reshard;
  const std::string python = argc > 1 ? argv[1] : RESHARD_SOURCE_DIR "/build/venv/bin/python";
  BenchCover("cover, 4096 columns of [1048576, 8192]", 1, 4096, {1 << 20, 8192});
  BenchCover("cover, 4096 rows", 4096, 1, {1 << 20, 8192});
  BenchCover("cover, grid 1024 x 1024", 1024, 1024, {1 << 20, 8192});
  return BenchMetadata(python, argc > 2 ? argv[2] : "200", argc > 3 ? argv[3] : "5000");
}
