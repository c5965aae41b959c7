#include "tests/attacks/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>

extern char** environ;

namespace reshard::testing {
namespace {

struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  ~Pipe() {
    Close(0);
    Close(1);
  }
  void Close(size_t end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

}  // namespace

CommandResult RunCommand(const std::vector<std::string>& arguments, const std::string& input) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> words = {RESHARD_COMMAND};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  Pipe in, out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.ends[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err.ends[1], 2);
  pid_t child = 0;
  const int failed = posix_spawn(&child, RESHARD_COMMAND, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error("cannot start " RESHARD_COMMAND);
  in.Close(0);
  out.Close(1);
  err.Close(1);
  fcntl(in.ends[1], F_SETFL, O_NONBLOCK);

  CommandResult result;
  size_t written = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (out.ends[0] >= 0 || err.ends[0] >= 0) {
    if (written == input.size()) in.Close(1);
    std::array<pollfd, 3> waits = {{{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}, {in.ends[1], POLLOUT, 0}}};
    poll(waits.data(), waits.size(), 100);
    if (std::chrono::steady_clock::now() > end) {
      result.timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    std::array<char, 65536> buffer;
    for (size_t i = 0; i < 2; ++i) {
      if (waits[i].revents == 0) continue;
      Pipe& from = i == 0 ? out : err;
      const ssize_t n = read(from.ends[0], buffer.data(), buffer.size());
      if (n > 0) (i == 0 ? result.out : result.err).append(buffer.data(), static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) from.Close(0);
    }
    if (waits[2].revents != 0) {
      const ssize_t n = write(in.ends[1], input.data() + written, input.size() - written);
      if (n > 0) written += static_cast<size_t>(n);
      if (n < 0 && errno != EINTR && errno != EAGAIN) written = input.size();  // it reads no further
    }
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  result.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace reshard::testing
