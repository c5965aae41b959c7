// Strided copies against memcpy of the same bytes by as many threads, in one run: the two take turns.
//
//   bench_copy [MiB a thread, default 32] [repetitions, default 9]
//
// Rows of `run` bytes are packed (from rows at a distance into rows that follow each other), unpacked (the other way
// round), or moved between rows at two distances. Distances are powers of two, 64 bytes less or more, and odd ones:
// where addresses share their low bits processors behave differently. "1 thread" and "2 threads" are the median time of
// memcpy divided by that of the copy; first in memory that begins on a cache line, as PyTorch's, then in memory that
// begins 16 bytes behind one, as malloc's and NumPy's, then in huge pages where the system gives them, as in what this
// library allocates. Wanted: at least 0.9 for runs of 1 KiB and longer, with as many threads as cores.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "reshard/runtime/strided_copy.h"
#include "runtime/host/host_pool.h"
#include "tests/bench/median.h"

namespace reshard {
namespace {

using bench::Median;

constexpr int kMostThreads = 2;
constexpr int64_t kLongRun = 1024;  // bytes

struct Case {
  int64_t run;  // bytes
  int64_t from_step;
  int64_t to_step;
};

// Where sources and destinations lie.
struct Kind {
  const char* name;
  int64_t past_line;  // bytes that they begin behind a cache line
  bool pooled;        // whether they are blocks of the pool, which asks for huge pages
};
constexpr Kind kKinds[] = {{"aligned", 0, false}, {"16 past", 16, false}, {"huge", 0, true}};

// A block of so many bytes that begins on a cache line, and 64 more.
class Block {
 public:
  Block(int64_t bytes, bool pooled) {
    if (pooled) {
      pooled_ = host::HostBlock(bytes + kLine);
      if (!pooled_) throw std::bad_alloc();
      std::memset(pooled_.data(), 1, static_cast<size_t>(bytes + kLine));
    } else {
      own_.assign(static_cast<size_t>(bytes + 2 * kLine), 1);
    }
  }
  char* data() {
    if (pooled_) return pooled_.data();
    const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(own_.data()) % kLine);
    return own_.data() + (kLine - past_line);
  }

 private:
  static constexpr int64_t kLine = host::kHostAlignment;
  std::vector<char> own_;
  host::HostBlock pooled_;
};

// One thread's source and destination.
struct Memory {
  Memory(int64_t bytes, bool pooled) : from(bytes, pooled), to(bytes, pooled) {}
  Block from;
  Block to;
};

using Clock = std::chrono::steady_clock;

// Seconds until the last of `threads` threads has run work(thread).
template <typename Work>
double Seconds(int threads, const Work& work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  others.reserve(threads);
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back([&, thread] {
      ++ready;
      while (!go) std::this_thread::yield();
      work(thread);
    });
  }
  while (ready < threads - 1) std::this_thread::yield();
  const Clock::time_point start = Clock::now();
  go = true;
  work(0);
  for (std::thread& other : others) other.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Time of memcpy / time of the copy.
double Ratio(const Case& one, int64_t bytes, int threads, int64_t start, int64_t repeat, std::vector<Memory>& memory) {
  const int64_t rows = bytes / one.run;
  const StridedCopy copy({{{0, 0, rows}}, {{0, 0, one.run}}}, 1, {one.from_step, 1}, {one.to_step, 1});
  const CopyMode mode = CopyModeFor(rows * one.run * threads, threads);
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int64_t r = 0; r < repeat; ++r) {
    theirs.push_back(Seconds(threads, [&](int thread) {
      Memory& m = memory[thread];
      std::memcpy(m.to.data() + start, m.from.data() + start, static_cast<size_t>(rows * one.run));
    }));
    ours.push_back(Seconds(threads, [&](int thread) {
      Memory& m = memory[thread];
      copy.Run(m.from.data() + start, m.to.data() + start, mode);
    }));
  }
  return Median(theirs) / Median(ours);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int64_t run : {1024, 4096, 16384, 65536}) {
    for (const int64_t times : {2, 4, 8}) {
      for (const int64_t past : {0, -64, 64}) {
        const int64_t far = times * run + past;
        cases.push_back({run, far, run});
        cases.push_back({run, run, far});
      }
    }
    cases.push_back({run, 2 * run, 4 * run});
  }
  for (const int64_t run : {104, 264, 520, 1000, 1032, 1344, 5440, 10920, 43688}) {
    cases.push_back({run, 3 * run, run});
    cases.push_back({run, run, 3 * run});
  }
  return cases;
}

void PrintTable(int64_t mebibytes, int64_t repeat) {
  const int64_t bytes = mebibytes << 20;
  const std::vector<Case> cases = Cases();
  int64_t longest = bytes;
  for (const Case& one : cases) longest = std::max(longest, bytes / one.run * std::max(one.from_step, one.to_step));
  std::vector<Memory> memory[2];  // not pooled, pooled
  for (const bool pooled : {false, true}) {
    for (int thread = 0; thread < kMostThreads; ++thread) memory[pooled].emplace_back(longest, pooled);
  }
  std::printf("%lld MiB a thread, median of %lld\n", static_cast<long long>(mebibytes), static_cast<long long>(repeat));
  std::printf("%9s %11s %11s", "", "", "");
  for (const Kind& kind : kKinds) std::printf(" %21s", kind.name);
  std::printf("\n%9s %11s %11s", "run bytes", "from step", "to step");
  for ([[maybe_unused]] const Kind& kind : kKinds) std::printf(" %10s %10s", "1 thread", "2 threads");
  std::printf("\n");
  std::vector<double> least(std::size(kKinds) * kMostThreads, 1e9);
  for (const Case& one : cases) {
    std::printf("%9lld %11lld %11lld", static_cast<long long>(one.run), static_cast<long long>(one.from_step),
                static_cast<long long>(one.to_step));
    size_t column = 0;
    for (const Kind& kind : kKinds) {
      for (int threads = 1; threads <= kMostThreads; ++threads, ++column) {
        const double ratio = Ratio(one, bytes, threads, kind.past_line, repeat, memory[kind.pooled]);
        if (one.run >= kLongRun) least[column] = std::min(least[column], ratio);
        std::printf(" %10.2f", ratio);
      }
    }
    std::printf("\n");
  }
  std::printf("%33s", "least from 1 KiB on");
  for (const double ratio : least) std::printf(" %10.2f", ratio);
  std::printf("\n");
}

}  // namespace
}  // namespace reshard

int main(int argc, char** argv) {
  const int64_t mebibytes = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 32;
  const int64_t repeat = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 9;
  if (mebibytes < 1 || repeat < 1) {
    std::fprintf(stderr, "bench_copy [MiB a thread] [repetitions]\n");
    return 2;
  }
  reshard::PrintTable(mebibytes, repeat);
  return 0;
}
