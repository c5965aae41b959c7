#include "checkpoint/io/remove_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/catch.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using testing::FaultySystem;
using testing::TempDirectory;
namespace fs = std::filesystem;

void PutFile(const std::string& path) { std::ofstream(path) << "x"; }

TEST_CASE("a tree is removed whatever is in it, and nothing outside it") {
  TempDirectory directory;
  fs::create_directory(directory / "outside");
  PutFile(directory / "outside/kept");
  const std::string tree = directory / "tree";
  // Names that the numbers of moved directories meet.
  fs::create_directories(tree + "/0/0/0/1/2");
  fs::create_directories(tree + "/1/0/1/0");
  fs::create_directories(tree + "/empty");
  PutFile(tree + "/2");
  PutFile(tree + "/0/0/0/1/2/file");
  PutFile(tree + "/1/0/1/0/file");
  fs::create_directory_symlink(directory / "outside", tree + "/0/0/link");
  fs::create_directory_symlink(directory / "outside", tree + "/link");
  fs::create_symlink("nowhere", tree + "/dangling");
  REQUIRE(mkfifo((tree + "/pipe").c_str(), 0600) == 0);
  fs::create_directory_symlink(tree, directory / "link");

  FaultySystem system;
  io::ScopedSystem scoped(&system);
  CHECK(io::RemoveTree(directory / "link").ok());
  CHECK(fs::exists(tree + "/2"));
  CHECK(io::RemoveTree(tree).ok());
  CHECK_FALSE(fs::exists(tree));
  CHECK(fs::exists(directory / "outside/kept"));
  CHECK(io::RemoveTree(directory / "outside/kept").ok());
  CHECK_FALSE(fs::exists(directory / "outside/kept"));
  CHECK(io::RemoveTree(tree).ok());
  CHECK(system.open() == 0);
}

TEST_CASE("a tree is removed however deep it is") {
  TempDirectory directory;
  const std::string tree = directory / "tree";
  REQUIRE(mkdir(tree.c_str(), 0700) == 0);
  int at = open(tree.c_str(), O_RDONLY | O_DIRECTORY);
  // Deeper than a path can be long and than descriptors would reach.
  for (int depth = 0; depth < 5000; ++depth) {
    REQUIRE(mkdirat(at, "d", 0700) == 0);
    const int below = openat(at, "d", O_RDONLY | O_DIRECTORY);
    REQUIRE(below >= 0);
    close(at);
    at = below;
  }
  close(at);
  CHECK(io::RemoveTree(tree).ok());
  CHECK_FALSE(fs::exists(tree));
}

TEST_CASE("a tree is removed by several at once") {
  TempDirectory directory;
  for (int round = 0; round < 20; ++round) {
    const std::string tree = directory / "tree";
    for (int i = 0; i < 30; ++i) {
      fs::create_directories(tree + "/a" + std::to_string(i % 3) + "/b" + std::to_string(i) + "/c");
      PutFile(tree + "/a" + std::to_string(i % 3) + "/b" + std::to_string(i) + "/file");
    }
    absl::Status first, second;
    std::thread other([&] { second = io::RemoveTree(tree); });
    first = io::RemoveTree(tree);
    other.join();
    INFO(first << " " << second);
    CHECK(first.ok());
    CHECK(second.ok());
    CHECK_FALSE(fs::exists(tree));
  }
}

}  // namespace
}  // namespace reshard
