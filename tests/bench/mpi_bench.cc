// Redistribution between the processes of an MPI program, beside what a program would write by hand: one MPI_Alltoallw
// whose datatypes are made once. Both move the same tensors in turns, and every element of both is checked. The columns
// are those of nccl-tests.
//   mpirun -n 4 bench_mpi [--most MIB] [--messages]
// --messages: without shared memory, so that MPI carries everything.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "reshard/mpi/mpi_communicator.h"
#include "reshard/runtime/redistributor.h"
#include "tests/bench/median.h"

namespace reshard {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

struct World {
  int rank = 0;
  int size = 1;
};

// Of one rank along each dimension.
using Box = std::vector<Interval>;

struct Case {
  const char* name;
  std::string mesh, from, to;
};

std::vector<Case> Cases(int ranks) {
  const std::string line = absl::StrCat("{X:", ranks, "}");
  std::vector<Case> cases = {{"rows to columns", line, "[<X>, *]", "[*, <X>]"},
                             {"columns to rows", line, "[*, <X>]", "[<X>, *]"},
                             {"columns to everywhere", line, "[*, <X>]", "[*, *]"}};
  if (ranks == 4) cases.push_back({"blocks to rows", "{A:2,B:2}", "[<A>, <B>]", "[<A,B>, *]"});
  return cases;
}

Box BoxOf(const Layout& layout, int64_t device) {
  Box box;
  const int64_t position = *layout.mesh().Position(device);
  for (int d = 0; d < layout.rank(); ++d) box.push_back(layout.Intervals(position, d)[0]);
  return box;
}

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

// By hand.
class AllToAllW {
 public:
  AllToAllW(const Layout& from, const Layout& to, const World& world) {
    const Box source = BoxOf(from, world.rank), target = BoxOf(to, world.rank);
    for (int peer = 0; peer < world.size; ++peer) {
      Add(Common(source, BoxOf(to, peer)), send_counts_, send_types_);
      Add(Common(target, BoxOf(from, peer)), receive_counts_, receive_types_);
    }
    zeros_.assign(static_cast<size_t>(world.size), 0);
  }
  ~AllToAllW() {
    for (MPI_Datatype& type : made_) MPI_Type_free(&type);
  }
  AllToAllW(const AllToAllW&) = delete;
  AllToAllW& operator=(const AllToAllW&) = delete;

  void Run(const float* source, float* target) {
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

// The value of an element, by its index in the whole tensor.
float ValueOf(int64_t index) { return static_cast<float>(index % 16'777'213); }

template <typename F>
void ForEachElement(const Box& box, int64_t columns, F&& f) {
  size_t at = 0;
  for (int64_t i = box[0].begin; i < box[0].end; ++i) {
    for (int64_t j = box[1].begin; j < box[1].end; ++j) f(at++, i * columns + j);
  }
}

// Seconds of one call, on the slowest rank.
template <typename F>
double TimeOf(F&& f) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  f();
  double seconds = MPI_Wtime() - begin;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

struct Measured {
  double seconds = 0;
  int64_t wrong = 0;
};

struct Both {
  Measured ours, by_hand;
};

absl::StatusOr<Both> Measure(const Case& c, int64_t rows, int64_t columns, Redistributor& redistributor,
                             const World& world) {
  const auto mesh = ParseMesh(c.mesh);
  if (!mesh.ok()) return mesh.status();
  const auto from = ParseLayoutRule(c.from, *mesh, {rows, columns}), to = ParseLayoutRule(c.to, *mesh, {rows, columns});
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  const auto prepared = redistributor.Prepare({*from, *to, DType::kF32});
  if (!prepared.ok()) return prepared.status();
  const Buffer& in = (*prepared)->source();
  const Buffer& out = (*prepared)->target();
  std::vector<float> source(static_cast<size_t>(in.bytes / 4)), target(static_cast<size_t>(out.bytes / 4));
  ForEachElement(BoxOf(*from, world.rank), columns, [&](size_t at, int64_t index) { source[at] = ValueOf(index); });
  const auto wrong = [&] {
    int64_t count = 0;
    ForEachElement(BoxOf(*to, world.rank), columns,
                   [&](size_t at, int64_t index) { count += target[at] == ValueOf(index) ? 0 : 1; });
    MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    std::fill(target.begin(), target.end(), -1.0F);
    return count;
  };
  AllToAllW by_hand(*from, *to, world);
  const std::vector<ConstTensorView> sources = {DenseView(static_cast<const void*>(source.data()), in.dtype, in.shape)};
  const std::vector<TensorView> targets = {DenseView(static_cast<void*>(target.data()), out.dtype, out.shape)};
  absl::Status status;
  const auto run_ours = [&] { status.Update(redistributor.Run(*prepared, sources, targets).status()); };
  const auto run_by_hand = [&] { by_hand.Run(source.data(), target.data()); };
  Both both;
  std::fill(target.begin(), target.end(), -1.0F);
  run_ours();
  both.ours.wrong = wrong();
  run_by_hand();
  both.by_hand.wrong = wrong();
  const int64_t times = std::clamp<int64_t>(256 * kMiB / (rows * columns * 4), 7, 200);
  std::vector<double> ours, theirs;
  for (int64_t i = 0; i < times; ++i) {
    ours.push_back(TimeOf(run_ours));
    theirs.push_back(TimeOf(run_by_hand));
  }
  both.ours.seconds = bench::Median(ours);
  both.by_hand.seconds = bench::Median(theirs);
  if (!status.ok()) return status;
  return both;
}

int Bench(int argc, char** argv, const World& world) {
  int64_t most = 256 * kMiB;
  MpiOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--messages") {
      options.shared_memory = false;
    } else if (word == "--most" && i + 1 < argc) {
      most = std::atoll(argv[++i]) * kMiB;
    } else {
      if (world.rank == 0) std::fprintf(stderr, "usage: mpirun -n N bench_mpi [--most MIB] [--messages]\n");
      return 2;
    }
  }
  const auto comm = MpiCommunicator::Create(MPI_COMM_WORLD, options);
  if (!comm.ok()) return 1;
  Redistributor redistributor(comm->get());
  bool right = true;
  for (const Case& c : Cases(world.size)) {
    if (world.rank == 0) {
      std::printf("# %s, %d ranks: %s %s -> %s\n", c.name, world.size, c.mesh.c_str(), c.from.c_str(), c.to.c_str());
      std::printf("# %30s %37s\n", "reshard", "MPI_Alltoallw");
      std::printf("#%11s %12s %6s %10s %7s %7s %6s %10s %7s %6s %6s\n", "size", "count", "type", "time", "algbw",
                  "busbw", "#wrong", "time", "busbw", "#wrong", "ratio");
    }
    for (int64_t bytes = 64 * kKiB; bytes <= most; bytes *= 4) {
      // Powers of two, and beside them odd ones.
      for (const int64_t odd : {0, 1}) {
        int64_t rows = 1;
        while (rows * rows * 4 < bytes) rows *= 2;
        const int64_t columns = std::max<int64_t>(bytes / 4 / rows, 1) + odd * 4;
        const auto both = Measure(c, rows, columns, redistributor, world);
        if (!both.ok()) {
          std::fprintf(stderr, "rank %d: %s\n", world.rank, both.status().ToString().c_str());
          return 1;
        }
        right &= both->ours.wrong == 0 && both->by_hand.wrong == 0;
        if (world.rank != 0) continue;
        const double size = static_cast<double>(rows * columns * 4);
        const auto algbw = [&](const Measured& m) { return size / world.size / m.seconds / 1e9; };
        const double bus = static_cast<double>(world.size - 1) / world.size;
        std::printf("%12.0f %12lld %6s %10.1f %7.2f %7.2f %6lld %10.1f %7.2f %6lld %6.2f\n", size,
                    static_cast<long long>(rows * columns), "float", both->ours.seconds * 1e6, algbw(both->ours),
                    algbw(both->ours) * bus, static_cast<long long>(both->ours.wrong), both->by_hand.seconds * 1e6,
                    algbw(both->by_hand) * bus, static_cast<long long>(both->by_hand.wrong),
                    both->ours.seconds / both->by_hand.seconds);
        std::fflush(stdout);
      }
    }
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  reshard::World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  const int code = reshard::Bench(argc, argv, world);
  MPI_Finalize();
  return code;
}
