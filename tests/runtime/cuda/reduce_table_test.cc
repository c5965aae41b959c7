// Tables of reductions, worked off by the kernel's code on the host, against ReduceBox of every job.
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/copy_table.h"
#include "runtime/host/reduce.h"
#include "tests/catch.h"
#include "tests/fakes/run_on_host.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/cuda/reduce_problems.h"

namespace reshard {
namespace {

using testing::RandomReduction;
using testing::ReduceProblem;

cuda::ReduceTable Check(std::mt19937_64& random, const std::vector<ReduceProblem>& problems) {
  testing::ReduceLaunch launch = testing::LaunchOf(random, problems);
  const cuda::ReduceTable& table = launch.table;
  REQUIRE(table.first_chunk.size() == table.entries.size() + 1);
  REQUIRE(table.bases == static_cast<int>(launch.base_at.size()));
  std::vector<std::vector<char>> out;
  std::vector<uint64_t> bases;
  for (const ReduceProblem& p : problems) {
    out.push_back(p.before);
    for (const char* buffer : {p.in.data(), static_cast<const char*>(out.back().data())}) {
      bases.push_back(reinterpret_cast<uintptr_t>(buffer) + static_cast<uint64_t>(launch.base_at[bases.size()]));
    }
  }
  testing::RunReduceOnHost(table.entries.data(), table.first_chunk.data(), static_cast<uint32_t>(table.entries.size()),
                           testing::BasesOf(bases));
  for (size_t i = 0; i < problems.size(); ++i) REQUIRE(testing::Difference(problems[i], out[i]) == "");
  return std::move(launch.table);
}

TEST_CASE("a table of reductions does what every reduction does, for every type and operation") {
  std::mt19937_64 random(testing::Seed());
  for (DType dtype : testing::kAllTypes) Check(random, testing::AllReductions(random, dtype));
}

TEST_CASE("a large reduction takes many blocks, an empty one none") {
  std::mt19937_64 random(testing::Seed());
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8, DType::kC128}) {
    std::vector<ReduceProblem> problems;
    problems.push_back(RandomReduction(random, dtype, ReduceOp::kSum, 0, 3, 0, 0));
    problems.push_back(RandomReduction(random, dtype, ReduceOp::kSum, 100001, 3, 0, 48));
    problems.push_back(RandomReduction(random, dtype, ReduceOp::kProd, 1, 2, 0, 0));
    const cuda::ReduceTable table = Check(random, problems);
    CHECK(table.entries.size() == 2);
    CHECK(table.first_chunk.back() > 20);
  }
  CHECK(cuda::MakeReduceTable({}).empty());
}

TEST_CASE("hundreds of reductions are one table") {
  std::mt19937_64 random(testing::Seed());
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  std::vector<ReduceProblem> problems;
  for (int i = 0; i < 400; ++i) {
    const DType dtype = testing::kAllTypes[random() % std::size(testing::kAllTypes)];
    const ReduceOp op = testing::kReduceOps[random() % std::size(testing::kReduceOps)];
    if (!host::CheckReduction(op, dtype).ok()) continue;
    problems.push_back(RandomReduction(random, dtype, op, pick(0, 600), pick(1, 8), pick(0, 20), pick(0, 20)));
  }
  CHECK(Check(random, problems).bases > cuda::KernelBases::kInline);
}

}  // namespace
}  // namespace reshard
