#include "tests/attacks/command.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/file_bytes.h"

namespace {

// Files rather than pipes: neither side can block the other.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content = "") {
    path_ = (std::filesystem::temp_directory_path() / "reshard_attack_XXXXXX").string();
    fd_ = mkstemp(path_.data());
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() {
    close(fd_);
    unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  int fd() const { return fd_; }
  std::string Read() const { return reshard::testing::FileBytes(path_); }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace

Outcome RunReshard(const std::vector<std::string>& args, const std::string& input) {
  TemporaryFile in(input), out, err;
  std::vector<char*> argv{const_cast<char*>(RESHARD_COMMAND)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(in.fd(), 0);
    dup2(out.fd(), 1);
    dup2(err.fd(), 2);
    alarm(60);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Outcome outcome;
  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) != child) return outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
  outcome.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  outcome.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  outcome.out = out.Read();
  outcome.err = err.Read();
  return outcome;
}
