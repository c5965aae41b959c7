// A RendezvousStore in a folder: for processes of one machine.
#ifndef RESHARD_TESTS_RUNTIME_NCCL_GPU_FILE_STORE_H_
#define RESHARD_TESTS_RUNTIME_NCCL_GPU_FILE_STORE_H_

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "reshard/nccl/nccl_communicator.h"

namespace reshard::testing {

class FileStore final : public RendezvousStore {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    // A name appears with its content complete, and only once.
    const std::string path = PathOf(key);
    const std::string draft = absl::StrCat(path, ".", getpid());
    {
      std::ofstream out(draft, std::ios::binary);
      out << value;
      if (!out.flush()) return absl::InternalError(absl::StrCat("cannot write ", draft));
    }
    const bool linked = link(draft.c_str(), path.c_str()) == 0;
    std::remove(draft.c_str());
    return linked ? absl::OkStatus() : absl::AlreadyExistsError(absl::StrCat("key '", key, "' is written twice"));
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    const absl::Time deadline = absl::Now() + timeout;
    for (;;) {
      absl::StatusOr<std::optional<std::string>> value = TryGet(key);
      if (!value.ok()) return value.status();
      if (value->has_value()) return **std::move(value);
      if (absl::Now() > deadline) return absl::DeadlineExceededError(absl::StrCat("nobody wrote key '", key, "'"));
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  absl::StatusOr<std::optional<std::string>> TryGet(const std::string& key) override {
    std::ifstream in(PathOf(key), std::ios::binary);
    if (!in) return std::optional<std::string>();
    std::ostringstream text;
    text << in.rdbuf();
    return std::optional<std::string>(text.str());
  }

 private:
  std::string PathOf(const std::string& key) const {
    return absl::StrCat(folder_, "/", absl::StrReplaceAll(key, {{"/", "_"}}));
  }
  const std::string folder_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_NCCL_GPU_FILE_STORE_H_
