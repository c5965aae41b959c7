#include "checkpoint/into_store/store_job.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "checkpoint/io/files.h"
#include "checkpoint/stores/at_once.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::into_store {
namespace {

constexpr std::string_view kFolder = ".reshard-";
constexpr std::string_view kFirstLine = "reshard object 1";
constexpr int64_t kLongestText = int64_t{64} << 20;

// All of a small object. NotFound.
absl::StatusOr<std::string> ReadText(Store& store, const std::string& url) {
  constexpr size_t kFirst = 16 << 10;  // for texts this short one request is enough
  std::string text(kFirst, '\0');
  ASSIGN_OR_RETURN(const StoredObject object, store.FindAndRead(url, absl::MakeSpan(text)));
  if (object.bytes > kLongestText) return absl::NotFoundError(absl::StrCat(url, " is too long"));
  const auto size = static_cast<size_t>(object.bytes);
  text.resize(size);
  if (size > kFirst) {
    RETURN_IF_ERROR(store.Read(url, object, kFirst, absl::MakeSpan(text).subspan(kFirst)));
  }
  return text;
}

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n', absl::SkipEmpty()); }

// 7 of "done-7"; -1 of anything else.
int64_t NumberOf(absl::string_view name, absl::string_view what) {
  int64_t number = -1;
  if (!absl::ConsumePrefix(&name, what) || !absl::ConsumePrefix(&name, "-") || !absl::SimpleAtoi(name, &number))
    return -1;
  return number;
}

}  // namespace

std::string ObjectRecord::ToText(std::string_view id) const {
  std::string text = absl::StrCat(status::View(kFirstLine), "\n", status::View(id), "\n", object.bytes, "\n",
                                  absl::CHexEscape(object.version), "\n");
  for (const hash::ContentHash& hash : hashes) absl::StrAppend(&text, hash.ToText(), "\n");
  return absl::StrCat(text, hash::ContentHash::Of(text).ToText(), "\n");
}

bool ObjectRecord::FromText(std::string_view text, std::string_view id, ObjectRecord* out) {
  const std::vector<std::string> lines = Lines(std::string(text));
  constexpr size_t kBefore = 4;
  // An object without a version has an empty line, which Lines leaves out.
  const bool versioned = text.find("\n\n") == text.npos;
  const size_t first = versioned ? kBefore : kBefore - 1;
  if (lines.size() < first + 1 || lines[0] != kFirstLine || lines[1] != id) return false;
  const size_t end = text.size() - std::min(text.size(), lines.back().size() + 1);
  if (hash::ContentHash::Of(text.substr(0, end)).ToText() != lines.back()) return false;
  ObjectRecord record;
  if (!absl::SimpleAtoi(lines[2], &record.object.bytes)) return false;
  if (versioned && !absl::CUnescape(lines[3], &record.object.version)) return false;
  for (size_t i = first; i + 1 < lines.size(); ++i) {
    if (!hash::ContentHash::FromText(lines[i], &record.hashes.emplace_back())) return false;
  }
  *out = std::move(record);
  return true;
}

StoreJob::StoreJob(std::shared_ptr<Store> store, const std::string& destination, const std::string& name,
                   std::string id, int64_t worker)
    : store_(std::move(store)),
      folder_(io::JoinPath(destination, absl::StrCat(status::View(kFolder), name))),
      id_(std::move(id)),
      worker_(worker) {}

std::string StoreJob::JobOf(std::string_view folder_name) {
  if (!folder_name.starts_with(kFolder)) return "";
  const std::string_view job = folder_name.substr(kFolder.size());
  return std::all_of(job.begin(), job.end(), absl::ascii_isalnum) ? std::string(job) : "";
}

bool StoreJob::HasContents(std::string_view name) {
  return name.ends_with(".distcp") || name.ends_with(".safetensors");
}

std::string StoreJob::At(std::string_view what, int64_t number) const {
  return io::JoinPath(folder_, absl::StrCat(status::View(what), "-", number));
}

absl::StatusOr<StoreJob::Seen> StoreJob::Look() const {
  Seen seen;
  const absl::StatusOr<std::vector<Store::Entry>> entries = store_->List(folder_);
  if (absl::IsNotFound(entries.status())) return seen;
  if (!entries.ok()) return entries.status();
  seen.exists = true;
  for (const Store::Entry& entry : *entries) {
    if (const int64_t done = NumberOf(entry.name, "done"); done >= 0) seen.done.insert(done);
    if (const int64_t claimed = NumberOf(entry.name, "claim"); claimed >= 0) seen.claimed.insert(claimed);
    if (const int64_t worker = NumberOf(entry.name, "beat"); worker >= 0) seen.beats[worker] = entry.object.version;
  }
  return seen;
}

absl::StatusOr<bool> StoreJob::IsAlive(Store& store, const std::string& folder) {
  const StoreJob job(std::shared_ptr<Store>(&store, [](Store*) {}), folder.substr(0, folder.rfind('/')),
                     JobOf(folder.substr(folder.rfind('/') + 1)), "", 0);
  ASSIGN_OR_RETURN(const Seen before, job.Look());
  if (before.beats.empty()) return false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500 * kBeatSeconds);
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ASSIGN_OR_RETURN(const Seen now, job.Look());
    for (const auto& [worker, version] : now.beats) {
      const auto found = before.beats.find(worker);
      if (found == before.beats.end() || found->second != version) return true;
    }
  }
  return false;
}

absl::Status StoreJob::Begin(absl::Span<const std::string> names) const {
  return store_->Put(io::JoinPath(folder_, "job"), absl::StrJoin(names, "\n"), /*create=*/false).status();
}

absl::StatusOr<std::vector<std::string>> StoreJob::NamesOf(Store& store, const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(store, io::JoinPath(folder, "job")));
  return Lines(text);
}

absl::Status StoreJob::Beat(int64_t count) const {
  // The time distinguishes a restarted worker from the one before.
  return store_->Put(At("beat", worker_), absl::StrCat(absl::ToUnixMicros(absl::Now()), " ", count), /*create=*/false)
      .status();
}

absl::StatusOr<bool> StoreJob::Claim(int64_t object) const {
  absl::Status put = store_->Put(At("claim", object), absl::StrCat(worker_), /*create=*/true).status();
  if (absl::IsAlreadyExists(put)) return false;
  if (absl::IsUnimplemented(put)) {
    const int64_t other = ClaimedBy(object);
    if (other >= 0 && other != worker_) return false;
    put = store_->Put(At("claim", object), absl::StrCat(worker_), /*create=*/false).status();
  }
  if (!put.ok()) return put;
  return true;
}

int64_t StoreJob::ClaimedBy(int64_t object) const {
  const absl::StatusOr<std::string> text = ReadText(*store_, At("claim", object));
  int64_t worker = -1;
  return text.ok() && absl::SimpleAtoi(*text, &worker) ? worker : -1;
}

absl::Status StoreJob::MarkDone(int64_t object, const ObjectRecord& record) const {
  return store_->Put(At("done", object), record.ToText(id_), /*create=*/false).status();
}

absl::StatusOr<ObjectRecord> StoreJob::Record(int64_t object) const {
  ASSIGN_OR_RETURN(const std::string text, ReadText(*store_, At("done", object)));
  ObjectRecord record;
  if (!ObjectRecord::FromText(text, id_, &record)) return absl::NotFoundError("a record that cannot be used");
  return record;
}

absl::Status StoreJob::Forget(int64_t object) const {
  RETURN_IF_ERROR(store_->Delete(At("done", object)));
  return store_->Delete(At("claim", object));
}

absl::Status StoreJob::KeepOld(absl::Span<const std::string> names) const {
  return store_->Put(io::JoinPath(folder_, "old"), absl::StrJoin(names, "\n"), /*create=*/false).status();
}

absl::StatusOr<std::vector<std::string>> StoreJob::OldOf(Store& store, const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadText(store, io::JoinPath(folder, "old"));
  if (absl::IsNotFound(text.status())) return std::vector<std::string>();
  if (!text.ok()) return text.status();
  return Lines(*text);
}

absl::Status StoreJob::SetAttempt(const std::string& attempt) const {
  return store_->Put(io::JoinPath(folder_, "attempt"), attempt, /*create=*/false).status();
}

absl::StatusOr<std::string> StoreJob::AttemptOf(Store& store, const std::string& folder) {
  return ReadText(store, io::JoinPath(folder, "attempt"));
}

absl::Status StoreJob::Remove(Store& store, const std::string& folder) {
  const absl::StatusOr<std::vector<Store::Entry>> entries = store.List(folder);
  if (absl::IsNotFound(entries.status())) return absl::OkStatus();
  if (!entries.ok()) return entries.status();
  // The list of names last: only it says what else the job has left.
  std::vector<std::string> urls;
  for (const Store::Entry& entry : *entries) {
    if (!entry.is_folder && entry.name != "job") urls.push_back(io::JoinPath(folder, entry.name));
  }
  RETURN_IF_ERROR(stores::AtOnce(static_cast<int64_t>(urls.size()),
                                 [&](int64_t i) { return store.Delete(urls[static_cast<size_t>(i)]); }));
  return store.Delete(io::JoinPath(folder, "job"));
}

}  // namespace reshard::into_store
