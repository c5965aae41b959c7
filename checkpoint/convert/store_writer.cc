#include "checkpoint/convert/store_writer.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "checkpoint/convert/batched_reads.h"
#include "checkpoint/convert/piece_writer.h"
#include "checkpoint/io/files.h"
#include "checkpoint/output/object_sink.h"
#include "status/macros.h"
#include "status/mutex.h"

namespace reshard::convert {
namespace {

// An object that is being written.
struct OpenObject {
  int64_t number = 0;
  int64_t first = 0;  // of its pieces
  std::unique_ptr<output::ObjectSink> sink;
  BatchedReads reads;
  into_store::ObjectRecord record;  // its hashes come batch by batch, each in its place
  size_t begun = 0;                 // batches, guarded by StoreWriter::mutex_, as is
  size_t ended = 0;
};

// A batch of an object.
struct Item {
  std::shared_ptr<OpenObject> object;
  size_t batch = 0;
  int64_t number = 0;  // of all items
  bool is_last() const { return object == nullptr; }
};

class StoreWriter {
 public:
  StoreWriter(const Conversion& conversion, Store& store, const into_store::StoreJob& job,
              absl::Span<const std::pair<int64_t, int64_t>> pieces, absl::Span<const int64_t> objects,
              std::vector<char>* own_claims, std::vector<into_store::ObjectRecord>* records,
              tasks::ProgressMeter* meter)
      : conversion_(conversion),
        store_(store),
        job_(job),
        pieces_(pieces),
        objects_(objects),
        own_claims_(*own_claims),
        records_(*records),
        meter_(*meter) {}

  absl::Status Run() {
    const int threads = conversion_.buffers.threads;
    std::vector<std::string> buffers(static_cast<size_t>(threads));
    return tasks::RunTasks(
        threads, threads,
        [this, &buffers](int64_t, int thread) {
          absl::Status done = Work(buffers[static_cast<size_t>(thread)]);
          if (!done.ok()) Fail();
          return done;
        },
        conversion_.options.stop);
  }

 private:
  absl::Status Work(std::string& buffer) {
    for (;;) {
      ASSIGN_OR_RETURN(const Item item, Next());
      if (item.is_last()) return absl::OkStatus();
      if (conversion_.options.stop.stop_requested()) return tasks::Stopped();
      RETURN_IF_ERROR(Write(item, buffer));
    }
  }

  // The next batch, once not too many before it are unfinished; none at the end, and after an error.
  absl::StatusOr<Item> Next() {
    const status::MutexLock taking(taking_);
    while (current_ == nullptr || current_->begun == current_->reads.batches.size()) {
      if (next_object_ == objects_.size()) return Item{};
      ASSIGN_OR_RETURN(current_, Begin(objects_[next_object_++]));
    }
    const status::MutexLock lock(mutex_);
    const int64_t ahead = int64_t{2} * conversion_.buffers.threads;
    changed_.Wait(mutex_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return failed_ || unfinished_.empty() || next_item_ - *unfinished_.begin() < ahead;
    });
    if (failed_) return Item{};
    unfinished_.insert(next_item_);
    return Item{current_, current_->begun++, next_item_++};
  }

  // Begins an object. Null if another worker has begun it.
  absl::StatusOr<std::shared_ptr<OpenObject>> Begin(int64_t number) {
    if (conversion_.options.workers > 1) {
      ASSIGN_OR_RETURN(const bool claimed, job_.Claim(number));
      if (!claimed) return nullptr;
      own_claims_[static_cast<size_t>(number)] = 1;
    }
    const output::OutputPlan& plan = *conversion_.plan;
    const output::OutputPlan::File& file = plan.files()[static_cast<size_t>(number)];
    const auto [first, end] = pieces_[static_cast<size_t>(number)];
    auto object = std::make_shared<OpenObject>();
    object->number = number;
    object->first = first;
    ASSIGN_OR_RETURN(
        std::unique_ptr<ObjectUpload> upload,
        store_.Begin(io::JoinPath(conversion_.destination, file.name), file.bytes, conversion_.buffers.upload));
    std::vector<Catalog::FileRange> places;
    for (int64_t i = first; i < end; ++i) places.push_back(plan.pieces()[static_cast<size_t>(i)].place);
    ASSIGN_OR_RETURN(object->sink, output::ObjectSink::Begin(file, static_cast<int32_t>(number), std::move(places),
                                                             std::move(upload)));
    std::vector<int64_t> numbers;
    for (int64_t i = first; i < end; ++i) numbers.push_back(i);
    // Requests take long: what lies between two runs is read with them.
    constexpr int64_t kMostTogether = 4096, kLongRun = int64_t{8} << 20;
    object->reads = BatchReads(plan, numbers, {kMostTogether, conversion_.batch_bytes, kLongRun});
    const auto place_of = [&](const BatchedRead& batch) {
      return plan.pieces()[static_cast<size_t>(object->reads.PiecesOf(batch).front())].place.at;
    };
    std::sort(object->reads.batches.begin(), object->reads.batches.end(),
              [&](const BatchedRead& a, const BatchedRead& b) { return place_of(a) < place_of(b); });
    object->record.hashes.resize(numbers.size());
    if (numbers.empty()) RETURN_IF_ERROR(Finish(*object));
    return object;
  }

  absl::Status Write(const Item& item, std::string& buffer) {
    OpenObject& object = *item.object;
    const PieceWriter writer(conversion_, object.sink.get(), &meter_);
    ASSIGN_OR_RETURN(const std::vector<output::FinishedPiece> finished,
                     writer.Write(object.reads, object.reads.batches[item.batch], buffer));
    for (const output::FinishedPiece& piece : finished) {
      object.record.hashes[static_cast<size_t>(static_cast<int64_t>(piece.piece) - object.first)] = {piece.hash_low,
                                                                                                     piece.hash_high};
    }
    bool all = false;
    {
      const status::MutexLock lock(mutex_);
      all = ++object.ended == object.reads.batches.size();
      unfinished_.erase(item.number);
      changed_.Announce();
    }
    return all ? Finish(object) : absl::OkStatus();
  }

  absl::Status Finish(OpenObject& object) {
    ASSIGN_OR_RETURN(object.record.object, object.sink->Finish());
    RETURN_IF_ERROR(job_.MarkDone(object.number, object.record));
    records_[static_cast<size_t>(object.number)] = std::move(object.record);
    return absl::OkStatus();
  }

  void Fail() {
    const status::MutexLock lock(mutex_);
    failed_ = true;
    changed_.Announce();
  }

  const Conversion& conversion_;
  Store& store_;
  const into_store::StoreJob& job_;
  const absl::Span<const std::pair<int64_t, int64_t>> pieces_;
  const absl::Span<const int64_t> objects_;
  std::vector<char>& own_claims_;                   // guarded by taking_
  std::vector<into_store::ObjectRecord>& records_;  // each written by one thread
  tasks::ProgressMeter& meter_;

  status::Mutex taking_;  // held by the thread that takes the next item, also while it begins an object
  size_t next_object_ ABSL_GUARDED_BY(taking_) = 0;
  std::shared_ptr<OpenObject> current_ ABSL_GUARDED_BY(taking_);

  status::Mutex mutex_;
  status::Changes changed_;
  std::set<int64_t> unfinished_ ABSL_GUARDED_BY(mutex_);  // numbers of items
  int64_t next_item_ ABSL_GUARDED_BY(mutex_) = 0;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::Status WriteObjects(const Conversion& conversion, Store& store, const into_store::StoreJob& job,
                          absl::Span<const std::pair<int64_t, int64_t>> pieces, absl::Span<const int64_t> objects,
                          std::vector<char>* own_claims, std::vector<into_store::ObjectRecord>* records,
                          tasks::ProgressMeter* meter) {
  return StoreWriter(conversion, store, job, pieces, objects, own_claims, records, meter).Run();
}

}  // namespace reshard::convert
