// main() of every test program: fixes the seed of all random choices and says which one it is.
#define CATCH_CONFIG_RUNNER
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/catch.h"

namespace reshard::testing {
namespace {

constexpr uint64_t kDefaultSeed = 20240607;

uint64_t SeedFromEnvironment() {
  const char* text = std::getenv("RESHARD_TEST_SEED");
  if (text == nullptr || *text == '\0') return kDefaultSeed;
  if (std::string(text) == "random") return std::random_device{}();
  char* end = nullptr;
  const uint64_t seed = std::strtoull(text, &end, 10);
  if (*end != '\0') {
    std::fprintf(stderr, "RESHARD_TEST_SEED=%s is neither a number nor `random`\n", text);
    std::exit(2);
  }
  return seed;
}

// RapidCheck reads RC_PARAMS once, at the first property.
void SeedRapidCheck() {
  const char* given = std::getenv("RC_PARAMS");
  std::string params = given == nullptr ? "" : given;
  if (params.find("seed=") != std::string::npos || params.find("reproduce=") != std::string::npos) return;
  params += (params.empty() ? "" : " ") + std::string("seed=") + std::to_string(Seed());
  ::setenv("RC_PARAMS", params.c_str(), 1);
}

}  // namespace

uint64_t Seed() {
  static const uint64_t seed = SeedFromEnvironment();
  return seed;
}

}  // namespace reshard::testing

int main(int argc, char** argv) {
  reshard::testing::SeedRapidCheck();
  Catch::Session session;
  if (const int bad = session.applyCommandLine(argc, argv); bad != 0) return bad;
  const auto& config = session.configData();
#if __has_include(<catch2/catch_all.hpp>)
  const bool lists_only = config.listTests || config.listTags || config.listReporters || config.showHelp;
#else
  const bool lists_only =
      config.listTests || config.listTags || config.listReporters || config.listTestNamesOnly || config.showHelp;
#endif
  if (!lists_only) {
    // Not to stdout, which a reporter may own.
    std::fprintf(stderr, "RESHARD_TEST_SEED=%llu\n", static_cast<unsigned long long>(reshard::testing::Seed()));
  }
  return session.run();
}
