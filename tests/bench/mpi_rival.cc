#include "tests/bench/mpi_rival.h"

#include <mpi.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#ifdef RESHARD_BENCH_COSTA
#include <costa/grid2grid/transform.hpp>
#include <costa/layout.hpp>
#endif

namespace reshard::bench {
namespace {

// What the two have in common, as a part of the fragment that is `of`; nothing if that is empty.
std::optional<MPI_Datatype> Common(const Box& of, const Box& other) {
  std::vector<int> sizes, parts, starts;
  for (size_t d = 0; d < of.size(); ++d) {
    const int64_t begin = std::max(of[d].begin, other[d].begin), end = std::min(of[d].end, other[d].end);
    if (begin >= end) return std::nullopt;
    sizes.push_back(static_cast<int>(of[d].length()));
    parts.push_back(static_cast<int>(end - begin));
    starts.push_back(static_cast<int>(begin - of[d].begin));
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray(static_cast<int>(sizes.size()), sizes.data(), parts.data(), starts.data(), MPI_ORDER_C,
                           MPI_FLOAT, &type);
  MPI_Type_commit(&type);
  return type;
}

class AllToAllW final : public MpiRival {
 public:
  AllToAllW(const Layout& from, const Layout& to, int rank) {
    const Box source = BoxOf(from, rank), target = BoxOf(to, rank);
    const auto size = static_cast<int>(from.mesh().size());
    for (int peer = 0; peer < size; ++peer) {
      Add(Common(source, BoxOf(to, peer)), send_counts_, send_types_);
      Add(Common(target, BoxOf(from, peer)), receive_counts_, receive_types_);
    }
    zeros_.assign(static_cast<size_t>(size), 0);
  }
  ~AllToAllW() override {
    for (MPI_Datatype& type : made_) MPI_Type_free(&type);
  }
  AllToAllW(const AllToAllW&) = delete;
  AllToAllW& operator=(const AllToAllW&) = delete;

  void Run(const float* source, float* target) override {
    MPI_Alltoallw(source, send_counts_.data(), zeros_.data(), send_types_.data(), target, receive_counts_.data(),
                  zeros_.data(), receive_types_.data(), MPI_COMM_WORLD);
  }

 private:
  void Add(const std::optional<MPI_Datatype>& type, std::vector<int>& counts, std::vector<MPI_Datatype>& types) {
    counts.push_back(type ? 1 : 0);
    types.push_back(type.value_or(MPI_FLOAT));
    if (type) made_.push_back(*type);
  }

  std::vector<int> send_counts_, receive_counts_, zeros_;
  std::vector<MPI_Datatype> send_types_, receive_types_, made_;
};

#ifdef RESHARD_BENCH_COSTA
// A grid of blocks with the borders of all boxes, and who has each.
class Grid {
 public:
  explicit Grid(const Layout& layout) {
    std::set<int> borders[2];
    const auto devices = static_cast<int>(layout.mesh().size());
    for (int device = 0; device < devices; ++device) {
      const Box box = BoxOf(layout, device);
      for (size_t d = 0; d < 2; ++d) {
        borders[d].insert(static_cast<int>(box[d].begin));
        borders[d].insert(static_cast<int>(box[d].end));
      }
    }
    for (size_t d = 0; d < 2; ++d) split_[d].assign(borders[d].begin(), borders[d].end());
    owners_.assign(static_cast<size_t>(Blocks(0) * Blocks(1)), -1);
    for (int device = 0; device < devices; ++device) {
      const Box box = BoxOf(layout, device);
      for (int i = 0; i < Blocks(0); ++i) {
        for (int j = 0; j < Blocks(1); ++j) {
          if (split_[0][i] != box[0].begin || split_[1][j] != box[1].begin) continue;
          int& owner = owners_[i * Blocks(1) + j];
          one_owner_ &= owner == -1;
          owner = device;
        }
      }
    }
    one_owner_ &= std::find(owners_.begin(), owners_.end(), -1) == owners_.end();
  }
  // Whether each box is one block, which no other process has.
  bool one_owner() const { return one_owner_; }

  costa::grid_layout<float> LayoutOf(float* data, int rank) const {
    std::vector<costa::block_t> mine;
    for (int i = 0; i < Blocks(0); ++i) {
      for (int j = 0; j < Blocks(1); ++j) {
        if (owners_[i * Blocks(1) + j] != rank) continue;
        mine.push_back({data, split_[1][static_cast<size_t>(j) + 1] - split_[1][j], i, j});
      }
    }
    return costa::custom_layout<float>(Blocks(0), Blocks(1), split_[0].data(), split_[1].data(), owners_.data(),
                                       static_cast<int>(mine.size()), mine.data(), 'R');
  }

 private:
  int Blocks(size_t d) const { return static_cast<int>(split_[d].size()) - 1; }

  std::vector<int> split_[2];
  std::vector<int> owners_;
  bool one_owner_ = true;
};

class Costa final : public MpiRival {
 public:
  Costa(Grid from, Grid to, int rank) : from_(std::move(from)), to_(std::move(to)), rank_(rank) {}
  void Run(const float* source, float* target) override {
    if (source != source_ || target != target_) {
      source_ = source;
      target_ = target;
      source_layout_ = from_.LayoutOf(const_cast<float*>(source), rank_);
      target_layout_ = to_.LayoutOf(target, rank_);
    }
    costa::transform(source_layout_, target_layout_, MPI_COMM_WORLD);
  }

 private:
  const Grid from_, to_;
  const int rank_;
  const float* source_ = nullptr;
  float* target_ = nullptr;
  costa::grid_layout<float> source_layout_, target_layout_;
};
#endif

}  // namespace

Box BoxOf(const Layout& layout, int64_t device) {
  Box box;
  const int64_t position = *layout.mesh().Position(device);
  for (int d = 0; d < layout.rank(); ++d) box.push_back(layout.Intervals(position, d)[0]);
  return box;
}

std::unique_ptr<MpiRival> MakeAllToAllW(const Layout& from, const Layout& to, int rank) {
  return std::make_unique<AllToAllW>(from, to, rank);
}

std::unique_ptr<MpiRival> MakeCosta([[maybe_unused]] const Layout& from, [[maybe_unused]] const Layout& to,
                                    [[maybe_unused]] int rank) {
#ifdef RESHARD_BENCH_COSTA
  Grid source(from), target(to);
  if (source.one_owner() && target.one_owner()) {
    return std::make_unique<Costa>(std::move(source), std::move(target), rank);
  }
#endif
  return nullptr;
}

}  // namespace reshard::bench
