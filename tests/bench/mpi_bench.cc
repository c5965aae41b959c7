// Redistribution between the processes of an MPI program, beside what a program would write by hand: one MPI_Alltoallw
// whose datatypes are made once, and COSTA (eth-cscs/COSTA) where the build was told of one (-D costa_ROOT=...). All
// move the same tensors in turns, and every element is checked. The columns are those of nccl-tests; size and count are
// of the whole tensor, ratio is the time of the other one over that of reshard.
//   OMP_NUM_THREADS=1 mpirun -n 4 bench_mpi [--most MIB] [--messages]
// (The threads of COSTA's OpenMP wait on the cores that other processes need, where these are as many.)
// --messages: without shared memory, so that MPI carries everything.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"
#include "reshard/mpi/mpi_communicator.h"
#include "reshard/runtime/redistributor.h"
#include "tests/bench/median.h"
#include "tests/bench/mpi_rival.h"

namespace reshard {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

struct World {
  int rank = 0;
  int size = 1;
};

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

// The value of an element, by its index in the whole tensor.
float ValueOf(int64_t index) { return static_cast<float>(index % 16'777'213); }

template <typename F>
void ForEachElement(const bench::Box& box, int64_t columns, F&& f) {
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

struct AllMeasured {
  Measured ours, by_hand;
  std::optional<Measured> costa;
};

absl::StatusOr<AllMeasured> Measure(const Case& c, int64_t rows, int64_t columns, Redistributor& redistributor,
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
  ForEachElement(bench::BoxOf(*from, world.rank), columns,
                 [&](size_t at, int64_t index) { source[at] = ValueOf(index); });
  const auto wrong = [&] {
    int64_t count = 0;
    ForEachElement(bench::BoxOf(*to, world.rank), columns,
                   [&](size_t at, int64_t index) { count += target[at] == ValueOf(index) ? 0 : 1; });
    MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    std::fill(target.begin(), target.end(), -1.0F);
    return count;
  };
  const std::vector<ConstTensorView> sources = {DenseView(static_cast<const void*>(source.data()), in.dtype, in.shape)};
  const std::vector<TensorView> targets = {DenseView(static_cast<void*>(target.data()), out.dtype, out.shape)};
  absl::Status status;
  struct Contender {
    std::function<void()> run;
    Measured measured;
    std::vector<double> times;
  };
  std::vector<Contender> contenders = {
      {[&] { status.Update(redistributor.Run(*prepared, sources, targets).status()); }, {}, {}}};
  std::vector<std::unique_ptr<bench::MpiRival>> rivals;
  rivals.push_back(bench::MakeAllToAllW(*from, *to, world.rank));
  rivals.push_back(bench::MakeCosta(*from, *to, world.rank));
  for (const auto& rival : rivals) {
    if (rival == nullptr) continue;
    contenders.push_back({[&, rival = rival.get()] { rival->Run(source.data(), target.data()); }, {}, {}});
  }
  std::fill(target.begin(), target.end(), -1.0F);
  for (Contender& contender : contenders) {
    contender.run();
    contender.measured.wrong = wrong();
  }
  const int64_t times = std::clamp<int64_t>(256 * kMiB / (rows * columns * 4), 7, 200);
  for (int64_t i = 0; i < times; ++i) {
    for (Contender& contender : contenders) contender.times.push_back(TimeOf(contender.run));
  }
  if (!status.ok()) return status;
  for (Contender& contender : contenders) contender.measured.seconds = bench::Median(contender.times);
  AllMeasured all{contenders[0].measured, contenders[1].measured, std::nullopt};
  if (contenders.size() > 2) all.costa = contenders[2].measured;
  return all;
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
      std::printf("# %63s %32s %32s\n", "reshard", "MPI_Alltoallw", "COSTA");
      std::printf("#%11s %12s %6s %10s %7s %7s %6s %10s %7s %6s %6s %10s %7s %6s %6s\n", "size", "count", "type",
                  "time", "algbw", "busbw", "#wrong", "time", "busbw", "#wrong", "ratio", "time", "busbw", "#wrong",
                  "ratio");
    }
    for (int64_t bytes = 64 * kKiB; bytes <= most; bytes *= 4) {
      // Powers of two, and beside them odd ones.
      for (const int64_t odd : {0, 1}) {
        int64_t rows = 1;
        while (rows * rows * 4 < bytes) rows *= 2;
        const int64_t columns = std::max<int64_t>(bytes / 4 / rows, 1) + odd * 4;
        const auto all = Measure(c, rows, columns, redistributor, world);
        if (!all.ok()) {
          std::fprintf(stderr, "rank %d: %s\n", world.rank, all.status().ToString().c_str());
          return 1;
        }
        right &= all->ours.wrong == 0 && all->by_hand.wrong == 0 && (!all->costa || all->costa->wrong == 0);
        if (world.rank != 0) continue;
        const double size = static_cast<double>(rows * columns * 4);
        const auto algbw = [&](const Measured& m) { return size / world.size / m.seconds / 1e9; };
        const double bus = static_cast<double>(world.size - 1) / world.size;
        std::printf("%12.0f %12lld %6s %10.1f %7.2f %7.2f %6lld", size, static_cast<long long>(rows * columns), "float",
                    all->ours.seconds * 1e6, algbw(all->ours), algbw(all->ours) * bus,
                    static_cast<long long>(all->ours.wrong));
        for (const Measured* const rival : {&all->by_hand, all->costa ? &*all->costa : nullptr}) {
          if (rival == nullptr) continue;
          std::printf(" %10.1f %7.2f %6lld %6.2f", rival->seconds * 1e6, algbw(*rival) * bus,
                      static_cast<long long>(rival->wrong), rival->seconds / all->ours.seconds);
        }
        std::printf("\n");
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
