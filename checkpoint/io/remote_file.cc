#include "checkpoint/io/remote_file.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/https/get_range.h"
#include "status/macros.h"
#include "status/mutex.h"
#include "status/view.h"

namespace reshard::io {
namespace {

constexpr int64_t kBlock = int64_t{128} << 10;
constexpr int64_t kSmall = int64_t{32} << 10;  // reads that come from blocks
constexpr int64_t kAtOnce = int64_t{8} << 20;
constexpr size_t kBlocksKept = 64;
constexpr int64_t kGap = int64_t{256} << 10;  // a request takes as long as some hundreds of KiB

// What a server cannot list, the files of checkpoints first.
constexpr std::string_view kNames[] = {
    ".metadata",
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "common.pt",
    "meta.pt",
    "metadata.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
};

// FNV-1a: a number for a text, the same in every process.
int64_t NumberFor(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return static_cast<int64_t>(hash);
}

// Blocks of all files, by URL, validator and number; the one used last comes first.
class Blocks {
 public:
  using Block = std::shared_ptr<const std::string>;

  Block Find(const std::string& key) {
    const status::MutexLock lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    used_.splice(used_.begin(), used_, found->second);
    return found->second->second;
  }
  void Keep(const std::string& key, Block block) {
    const status::MutexLock lock(mutex_);
    if (index_.contains(key)) return;
    used_.emplace_front(key, std::move(block));
    index_[key] = used_.begin();
    if (used_.size() <= kBlocksKept) return;
    index_.erase(used_.back().first);
    used_.pop_back();
  }

 private:
  status::Mutex mutex_;
  std::list<std::pair<std::string, Block>> used_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::list<std::pair<std::string, Block>>::iterator> index_ ABSL_GUARDED_BY(mutex_);
};
Blocks& KeptBlocks() {
  static Blocks* const blocks = new Blocks();
  return *blocks;
}

class RemoteFile : public ReadFile {
 public:
  RemoteFile(const std::string& url, const https::Range& first, std::atomic<int64_t>* count)
      : ReadFile(url, first.total, NumberFor(first.validator)), validator_(first.validator), count_(count) {}

  int64_t gap() const override { return kGap; }

  absl::Status ReadAt(int64_t at, absl::Span<char> out) const override {
    const auto size = static_cast<int64_t>(out.size());
    if (at < 0 || at > bytes() || size > bytes() - at) {
      return absl::DataLossError(
          absl::StrCat(path(), " ends at byte ", bytes(), "; bytes ", at, " to ", at + size, " were wanted"));
    }
    for (int64_t done = 0; done < size;) {
      int64_t part = std::min(size - done, kAtOnce);
      absl::Status read;
      if (size <= kSmall) {
        part = std::min(part, kBlock - (at + done) % kBlock);
        read = ReadFromBlock(at + done, out.subspan(static_cast<size_t>(done), static_cast<size_t>(part)));
      } else {
        read = Ask(at + done, out.subspan(static_cast<size_t>(done), static_cast<size_t>(part)));
      }
      if (!read.ok()) return read;
      done += part;
    }
    return absl::OkStatus();
  }

  // The block with the first bytes, which were read when it was opened.
  void KeepFirst(std::string bytes) const {
    KeptBlocks().Keep(KeyOf(0), std::make_shared<const std::string>(std::move(bytes)));
  }

 private:
  std::string KeyOf(int64_t block) const { return absl::StrCat(path(), "\n", validator_, "\n", block); }

  absl::Status ReadFromBlock(int64_t at, absl::Span<char> out) const {
    const int64_t number = at / kBlock;
    Blocks::Block block = KeptBlocks().Find(KeyOf(number));
    if (block == nullptr) {
      std::string bytes(static_cast<size_t>(std::min(kBlock, this->bytes() - number * kBlock)), '\0');
      RETURN_IF_ERROR(Ask(number * kBlock, absl::MakeSpan(bytes)));
      block = std::make_shared<const std::string>(std::move(bytes));
      KeptBlocks().Keep(KeyOf(number), block);
    }
    std::memcpy(out.data(), block->data() + (at - number * kBlock), out.size());
    return absl::OkStatus();
  }

  absl::Status Ask(int64_t at, absl::Span<char> out) const {
    const absl::StatusOr<https::Range> range = https::GetRange(path(), at, out);
    const bool gone = absl::IsNotFound(range.status());
    if (gone || (range.ok() && (range->total != bytes() || range->validator != validator_))) {
      return absl::FailedPreconditionError(
          absl::StrCat("the source was written to while it was read: ", path(), gone ? " is gone" : " has changed"));
    }
    if (!range.ok()) return range.status();
    if (count_ != nullptr) count_->fetch_add(range->length, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  const std::string validator_;
  std::atomic<int64_t>* const count_;
};

struct Listings {
  status::Mutex mutex;
  std::map<std::string, std::vector<std::string>> names ABSL_GUARDED_BY(mutex);
};
Listings& KnownListings() {
  static Listings* const listings = new Listings();
  return *listings;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReadFile>> OpenRemote(const std::string& url, std::atomic<int64_t>* count) {
  std::string first(static_cast<size_t>(kBlock), '\0');
  ASSIGN_OR_RETURN(const https::Range range, https::GetRange(url, 0, absl::MakeSpan(first)));
  if (count != nullptr) count->fetch_add(range.length, std::memory_order_relaxed);
  auto file = std::make_unique<RemoteFile>(url, range, count);
  first.resize(range.length);
  file->KeepFirst(std::move(first));
  return file;
}

absl::StatusOr<FileKind> KindOfRemote(const std::string& url) {
  const absl::StatusOr<std::unique_ptr<ReadFile>> file = OpenRemote(url, nullptr);
  if (file.ok()) return FileKind::kFile;
  // Some servers answer so for what they do not have, and some have pages for what is not a file.
  const bool maybe_above = absl::IsNotFound(file.status()) || absl::IsPermissionDenied(file.status()) ||
                           absl::IsUnimplemented(file.status()) || absl::IsInvalidArgument(file.status());
  if (!maybe_above) return file.status();
  const absl::StatusOr<std::vector<std::string>> names = ListRemote(url);
  if (names.ok()) return FileKind::kDirectory;
  if (!absl::IsNotFound(names.status())) return names.status();
  if (absl::IsNotFound(file.status())) return FileKind::kNothing;
  return file.status();
}

absl::StatusOr<std::vector<std::string>> ListRemote(const std::string& url) {
  Listings& known = KnownListings();
  {
    const status::MutexLock lock(known.mutex);
    if (const auto found = known.names.find(url); found != known.names.end()) return found->second;
  }
  std::vector<std::string> names;
  absl::Status denied;
  for (const std::string_view name : kNames) {
    char byte = 0;
    const absl::StatusOr<https::Range> there = https::GetRange(JoinPath(url, name), 0, {&byte, 1});
    if (there.ok()) {
      names.emplace_back(name);
    } else if (absl::IsPermissionDenied(there.status())) {
      denied = there.status();
    } else if (!absl::IsNotFound(there.status())) {
      return there.status();
    }
  }
  if (names.empty() && !denied.ok()) return denied;
  if (names.empty()) {
    return absl::NotFoundError(absl::StrCat(url, ": none of the files that checkpoints have is there"));
  }
  std::sort(names.begin(), names.end());
  const status::MutexLock lock(known.mutex);
  return known.names.emplace(url, std::move(names)).first->second;
}

}  // namespace reshard::io
