#include "checkpoint/io/remote_file.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/stores/at_once.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "reshard/checkpoint/store.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/mutex.h"
#include "status/view.h"

namespace reshard::io {
namespace {

constexpr int64_t kBlock = int64_t{128} << 10;
constexpr int64_t kSmall = int64_t{32} << 10;  // reads that come from blocks
// Least bytes of a request: enough to be worth its latency.
constexpr int64_t kLeastAsked = int64_t{2} << 20;
// Requests that one process has under way at the same time, if that many are worth it. More would not take less time,
// and a store answers only so many per second, shared by all hosts that read below one prefix.
constexpr int64_t kAtOnce = 64;
constexpr size_t kBlocksKept = 64;
constexpr int64_t kMostAhead = int64_t{4} << 20;
constexpr int64_t kRemoteGap = int64_t{256} << 10;  // a request takes as long as some hundreds of KiB

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
    if (!index_.contains(key)) Add(key, std::move(block));
  }
  // Keeps the first block of a file as it is now. True: it differed from the one kept before, and all other blocks of
  // the file are dropped. Its version is then a time too coarse to tell them apart.
  bool Renew(const std::string& file, const std::string& key, Block block) {
    const status::MutexLock lock(mutex_);
    const auto found = index_.find(key);
    const bool is_another = found != index_.end() && *found->second->second != *block;
    if (is_another) {
      used_.remove_if([&](const auto& one) { return absl::StartsWith(one.first, file); });
      std::erase_if(index_, [&](const auto& one) { return absl::StartsWith(one.first, file); });
    }
    if (!index_.contains(key)) Add(key, std::move(block));
    return is_another;
  }

 private:
  void Add(const std::string& key, Block block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    used_.emplace_front(key, std::move(block));
    index_[key] = used_.begin();
    if (used_.size() <= kBlocksKept) return;
    index_.erase(used_.back().first);
    used_.pop_back();
  }

  status::Mutex mutex_;
  std::list<std::pair<std::string, Block>> used_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::list<std::pair<std::string, Block>>::iterator> index_ ABSL_GUARDED_BY(mutex_);
};
Blocks& KeptBlocks() {
  static Blocks* const blocks = new Blocks();
  return *blocks;
}

// Ranges that were read ahead, by URL and validator; the one read last comes first.
class Ahead {
 public:
  void Keep(const std::string& key, int64_t at, std::string bytes) {
    const status::MutexLock lock(mutex_);
    bytes_ += static_cast<int64_t>(bytes.size());
    kept_.push_front({key, at, std::make_shared<const std::string>(std::move(bytes))});
    while (bytes_ > kAheadMemory) {
      bytes_ -= static_cast<int64_t>(kept_.back().bytes->size());
      kept_.pop_back();
    }
  }
  void Forget(const std::string& key) {
    const status::MutexLock lock(mutex_);
    kept_.remove_if([&](const Range& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (range.key == key) bytes_ -= static_cast<int64_t>(range.bytes->size());
      return range.key == key;
    });
  }
  // False: they are not there.
  bool Take(const std::string& key, int64_t at, absl::Span<char> out) {
    std::shared_ptr<const std::string> bytes;
    int64_t from = 0;
    {
      const status::MutexLock lock(mutex_);
      for (const Range& range : kept_) {
        if (range.key != key || at < range.at) continue;
        if (at + static_cast<int64_t>(out.size()) > range.at + static_cast<int64_t>(range.bytes->size())) continue;
        bytes = range.bytes;
        from = range.at;
        break;
      }
    }
    if (bytes != nullptr) std::memcpy(out.data(), bytes->data() + (at - from), out.size());
    return bytes != nullptr;
  }

 private:
  struct Range {
    std::string key;
    int64_t at = 0;
    std::shared_ptr<const std::string> bytes;
  };
  status::Mutex mutex_;
  std::list<Range> kept_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};
Ahead& KeptAhead() {
  static Ahead* const ahead = new Ahead();
  return *ahead;
}

// Counts the reads of this process that are cut into requests, while it lives.
class CutRead {
 public:
  CutRead() : reads_(under_way_.fetch_add(1, std::memory_order_relaxed) + 1) {}
  ~CutRead() { under_way_.fetch_sub(1, std::memory_order_relaxed); }
  CutRead(const CutRead&) = delete;
  CutRead& operator=(const CutRead&) = delete;

  // Bytes per request of a read of `size` bytes: each read has an equal share of kAtOnce.
  //   16 MiB, alone: 2 MiB, eight requests; beside fifteen others: 4 MiB; beside sixty-three: 16 MiB
  int64_t PerRequest(int64_t size) const {
    return std::clamp(CeilDiv(size, CeilDiv(kAtOnce, reads_)), kLeastAsked, kRemoteMost);
  }

 private:
  static inline std::atomic<int64_t> under_way_{0};
  const int64_t reads_;
};

class RemoteFile : public ReadFile {
 public:
  RemoteFile(const std::string& url, StoredObject object, std::shared_ptr<Store> store, std::atomic<int64_t>* count)
      : ReadFile(url, object.bytes, NumberFor(object.version)),
        object_(std::move(object)),
        key_(absl::StrCat(url, "\n", object_.version)),
        store_(std::move(store)),
        count_(count) {}

  int64_t gap() const override { return kRemoteGap; }
  int64_t most() const override { return kRemoteMost; }

  absl::Status ReadAhead(int64_t at, int64_t length) const override {
    if (length > kMostAhead || length <= kSmall || at < 0 || at > bytes() - length) return absl::OkStatus();
    std::string ahead(static_cast<size_t>(length), '\0');
    RETURN_IF_ERROR(Ask(at, absl::MakeSpan(ahead)));
    KeptAhead().Keep(key_, at, std::move(ahead));
    return absl::OkStatus();
  }

  absl::Status ReadAt(int64_t at, absl::Span<char> out) const override {
    const auto size = static_cast<int64_t>(out.size());
    if (at < 0 || at > bytes() || size > bytes() - at) {
      return absl::DataLossError(
          absl::StrCat(path(), " ends at byte ", bytes(), "; bytes ", at, " to ", at + size, " were wanted"));
    }
    if (KeptAhead().Take(key_, at, out)) return absl::OkStatus();
    const auto part_of = [&](int64_t from, int64_t length) {
      return out.subspan(static_cast<size_t>(from), static_cast<size_t>(length));
    };
    if (size > kSmall) {
      const CutRead read;
      const int64_t asked = read.PerRequest(size);
      return stores::AtOnce(CeilDiv(size, asked), [&](int64_t i) {
        const int64_t from = i * asked;
        return Ask(at + from, part_of(from, std::min(asked, size - from)));
      });
    }
    for (int64_t done = 0, part = 0; done < size; done += part) {
      part = std::min(size - done, kBlock - (at + done) % kBlock);
      RETURN_IF_ERROR(ReadFromBlock(at + done, part_of(done, part)));
    }
    return absl::OkStatus();
  }

  // The block with the first bytes, which were read when it was opened.
  void KeepFirst(std::string bytes) const {
    auto block = std::make_shared<const std::string>(std::move(bytes));
    if (KeptBlocks().Renew(absl::StrCat(key_, "\n"), KeyOf(0), std::move(block))) KeptAhead().Forget(key_);
  }

 private:
  std::string KeyOf(int64_t block) const { return absl::StrCat(key_, "\n", block); }

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
    absl::Status read = store_->Read(path(), object_, at, out);
    if (absl::IsFailedPrecondition(read)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the source was written to while it was read: ", read.message()));
    }
    if (read.ok() && count_ != nullptr) count_->fetch_add(static_cast<int64_t>(out.size()), std::memory_order_relaxed);
    return read;
  }

  const StoredObject object_;
  const std::string key_;  // of this content
  const std::shared_ptr<Store> store_;
  std::atomic<int64_t>* const count_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReadFile>> OpenRemote(const std::string& url, std::atomic<int64_t>* count) {
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, stores::StoreOf(url));
  std::string first(static_cast<size_t>(kBlock), '\0');
  ASSIGN_OR_RETURN(StoredObject object, store->FindAndRead(url, absl::MakeSpan(first)));
  first.resize(static_cast<size_t>(std::min(kBlock, object.bytes)));
  if (count != nullptr) count->fetch_add(static_cast<int64_t>(first.size()), std::memory_order_relaxed);
  auto file = std::make_unique<RemoteFile>(url, std::move(object), std::move(store), count);
  file->KeepFirst(std::move(first));
  return file;
}

absl::StatusOr<FileFacts> LookAtRemote(const std::string& url) {
  if (stores::SchemeOf(url) == "https") {  // where one request gives the first bytes as well
    ASSIGN_OR_RETURN(const std::unique_ptr<ReadFile> file, OpenRemote(url, nullptr));
    return FileFacts{file->bytes(), file->modified()};
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Store> store, stores::StoreOf(url));
  ASSIGN_OR_RETURN(const StoredObject object, store->Find(url));
  return FileFacts{object.bytes, NumberFor(object.version)};
}

absl::StatusOr<FileKind> KindOfRemote(const std::string& url, std::optional<std::vector<std::string>>* names) {
  absl::StatusOr<FileFacts> file = absl::UnknownError("not asked for");
  absl::StatusOr<std::vector<std::string>> inside = absl::UnknownError("not asked for");
  const auto ask = [&](int64_t what) -> absl::Status {
    if (what == 0) file = LookAtRemote(url);
    if (what == 1) inside = ListRemote(url);
    return absl::OkStatus();
  };
  // In place of listing, a server is asked for many names: only if there is no file.
  const bool lists = stores::SchemeOf(url) != "https";
  RETURN_IF_ERROR(stores::AtOnce(lists ? 2 : 1, ask));
  if (file.ok()) return FileKind::kFile;
  // Some servers answer so for what they do not have, and some have pages for what is not a file.
  const bool maybe_above = absl::IsNotFound(file.status()) || absl::IsPermissionDenied(file.status()) ||
                           absl::IsUnimplemented(file.status()) || absl::IsInvalidArgument(file.status());
  if (!maybe_above) return file.status();
  if (!lists) RETURN_IF_ERROR(ask(1));
  if (inside.ok()) {
    if (names != nullptr) *names = *std::move(inside);
    return FileKind::kDirectory;
  }
  if (!absl::IsNotFound(inside.status())) return inside.status();
  if (absl::IsNotFound(file.status())) return FileKind::kNothing;
  return file.status();
}

absl::StatusOr<std::vector<DirectoryEntry>> ListRemoteEntries(const std::string& url) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Store> store, stores::StoreOf(url));
  ASSIGN_OR_RETURN(const std::vector<Store::Entry> listed, store->List(url));
  std::map<std::string, FileKind> kinds;
  for (const Store::Entry& entry : listed) {
    FileKind& kind = kinds.emplace(entry.name, FileKind::kDirectory).first->second;
    if (!entry.is_folder) kind = FileKind::kFile;
  }
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, kind] : kinds) entries.push_back({name, kind});
  return entries;
}

absl::StatusOr<std::vector<std::string>> ListRemote(const std::string& url) {
  ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, ListRemoteEntries(url));
  std::vector<std::string> names;
  for (DirectoryEntry& entry : entries) names.push_back(std::move(entry.name));
  return names;
}

}  // namespace reshard::io
