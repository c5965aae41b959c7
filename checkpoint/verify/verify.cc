#include "reshard/checkpoint/verify.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/auxiliary_files/copy.h"
#include "checkpoint/auxiliary_files/find.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/source/source.h"
#include "checkpoint/stores/url.h"
#include "checkpoint/tasks/run_tasks.h"
#include "checkpoint/verify/compare.h"
#include "reshard/checkpoint/describe.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

constexpr int64_t kStripe = int64_t{1} << 20;
constexpr size_t kRangesShown = 4;

// Row-major element numbers [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// What differs in one tensor or item, collected from stripes that come in any order.
struct Found {
  std::vector<Range> ranges;  // ascending and apart within a stripe
  int64_t elements = 0;
};

// One stripe of one tensor or byte item.
struct Task {
  size_t pair = 0;
  catalog::StoredBox box;  // tensors
  int64_t first = 0;       // row-major number of its first element; byte items: of its first byte
  int64_t bytes = 0;
};

struct Pair {
  std::string_view name;
  int64_t a = 0;
  int64_t b = 0;
  bool is_item = false;
  int64_t element = 1;
  std::vector<int64_t> shape;
};

void FindRanges(const char* a, const char* b, const Task& task, int64_t element, Found* found) {
  if (std::memcmp(a, b, static_cast<size_t>(task.bytes)) == 0) return;
  for (int64_t at = 0; at < task.bytes; at += element) {
    if (std::memcmp(a + at, b + at, static_cast<size_t>(element)) == 0) continue;
    const int64_t number = task.first + at / element;
    ++found->elements;
    if (!found->ranges.empty() && found->ranges.back().end == number) {
      ++found->ranges.back().end;
    } else if (found->ranges.size() < kRangesShown) {
      found->ranges.push_back({number, number + 1});
    }
  }
}

std::string IndexText(int64_t number, const Pair& pair) {
  if (pair.is_item) return absl::StrCat(number);
  std::vector<int64_t> index(pair.shape.size());
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = number % pair.shape[d];
    number /= pair.shape[d];
  }
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}

std::string Describe(const Found& found, const Pair& pair, int64_t all) {
  std::vector<Range> ranges = found.ranges;
  std::sort(ranges.begin(), ranges.end(), [](const Range& x, const Range& y) { return x.begin < y.begin; });
  // Merges ranges that continue in the next stripe.
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && merged.back().end == range.begin) {
      merged.back().end = range.end;
    } else {
      merged.push_back(range);
    }
  }
  std::string text = pair.is_item ? "bytes " : "elements ";
  for (size_t i = 0; i < merged.size() && i < kRangesShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", IndexText(merged[i].begin, pair));
    if (merged[i].end - merged[i].begin > 1) absl::StrAppend(&text, " to ", IndexText(merged[i].end - 1, pair));
  }
  if (merged.size() > kRangesShown) absl::StrAppend(&text, ", ..");
  absl::StrAppend(&text, " differ (", found.elements, " of ", all, ")");
  return text;
}

// `b` is a path, or an admitted URL.
absl::Status CompareAuxiliaryFilesAt(const std::string& a, const Catalog& catalog, const std::string& b,
                                     const AuxiliaryFileTerms& terms, VerifyReport* report) {
  const absl::StatusOr<std::vector<std::string>> names = io::ListDirectory(b);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();  // a file
  if (!names.ok()) return names.status();
  ASSIGN_OR_RETURN(const AuxiliaryFiles found, auxiliary_files::Find(a, catalog, terms));
  for (const AuxiliaryFile& file : found.carried) {
    ASSIGN_OR_RETURN(const size_t different, auxiliary_files::FirstDifferent(catalog.root(), {&file, 1}, b));
    ++report->side_files;
    if (different == 1) continue;
    ASSIGN_OR_RETURN(const io::FileKind kind, io::KindOf(io::JoinPath(b, file.to)));
    report->differences.push_back({absl::StrCat("auxiliary file ", file.path),
                                   kind == io::FileKind::kNothing ? "only in A" : "its bytes differ"});
  }
  return absl::OkStatus();
}

absl::Status CompareAuxiliaryFiles(const std::string& a, const Catalog& catalog, const std::string& b,
                                   const AuxiliaryFileTerms& terms, VerifyReport* report) {
  if (const std::string meant = DirectoryMeantBy(b); !meant.empty()) {
    return CompareAuxiliaryFilesAt(a, catalog, meant, terms, report);
  }
  if (stores::IsUrl(b)) {
    ASSIGN_OR_RETURN(const std::string admitted, stores::Admit(b));
    return CompareAuxiliaryFilesAt(a, catalog, admitted, terms, report);
  }
  return CompareAuxiliaryFilesAt(a, catalog, b, terms, report);
}

constexpr int kAllCores = std::numeric_limits<int>::max();

bool WeightsOnly(const std::optional<source::Sidecar>& of_b) { return of_b && of_b->made && of_b->made->weights_only; }

// Opens what of A went into B, under the names that it has in B.
absl::StatusOr<std::unique_ptr<source::Source>> OpenAsMade(const std::string& a, const VerifyOptions& options,
                                                           const std::optional<source::Sidecar>& of_b) {
  source::SourceOptions terms{options.limits, options.ignore_sidecar, source::ChunkChecks::kAll, options.recipe};
  terms.recipe.selection.weights_only |= WeightsOnly(of_b);
  if (of_b && of_b->made && !of_b->made->taken_off.empty()) {
    terms.unwrap = true;
    absl::StatusOr<std::unique_ptr<source::Source>> bare = source::Source::Open(a, terms);
    // B may have been made of another checkpoint than A.
    if (bare.ok() && AreSame((*bare)->wrappers(), of_b->made->taken_off)) return bare;
    if (!bare.ok() && !absl::IsInvalidArgument(bare.status())) return bare.status();
    terms.unwrap = false;
  }
  return source::Source::Open(a, terms);
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyCheckpoints(const std::string& a, const std::string& b,
                                               const VerifyOptions& options) {
  return status::NoThrow("comparing checkpoints", [&]() -> absl::StatusOr<VerifyReport> {
    ASSIGN_OR_RETURN(std::unique_ptr<source::Source> second,
                     source::Source::Open(b, {options.limits, options.ignore_sidecar}));
    ASSIGN_OR_RETURN(const std::unique_ptr<source::Source> first, OpenAsMade(a, options, second->sidecar()));
    const int threads =
        std::max(first->ReadThreads(options.threads, kAllCores), second->ReadThreads(options.threads, kAllCores));
    ASSIGN_OR_RETURN(VerifyReport report,
                     verify::CompareSources(*first, *second, threads, options.progress, options.stop));
    report.taken_off = first->wrappers();
    report.as_made_weights_only = WeightsOnly(second->sidecar()) && !options.recipe.selection.weights_only;
    RETURN_IF_ERROR(CompareAuxiliaryFiles(a, first->catalog(), b, options.side_files, &report));
    return report;
  });
}

absl::StatusOr<VerifyReport> verify::CompareSources(source::Source& a, source::Source& b, int threads,
                                                    const std::function<void(const ConvertProgress&)>& progress,
                                                    const std::stop_token& stop) {
  VerifyReport report;
  std::vector<Pair> pairs;
  std::map<size_t, std::string> differences;  // by number of the pair, or of what has no partner

  const auto index_in = [](const Catalog& catalog, std::string_view name) -> int64_t {
    const Catalog::Tensor* found = catalog.FindTensor(name);
    return found == nullptr ? -1 : found - catalog.tensors().data();
  };
  absl::flat_hash_map<std::string_view, int64_t> items_of_b;
  for (size_t i = 0; i < b.catalog().byte_items().size(); ++i) {
    items_of_b[b.catalog().byte_items()[i].name] = static_cast<int64_t>(i);
  }
  const auto differ = [&](std::string_view name, std::string what) {
    differences[pairs.size()] = std::move(what);
    pairs.push_back({name, -1, -1, false, 1, {}});
  };
  for (size_t t = 0; t < a.catalog().tensors().size(); ++t) {
    const Catalog::Tensor& left = a.catalog().tensors()[t];
    const int64_t other = index_in(b.catalog(), left.name);
    if (other < 0) {
      differ(left.name, items_of_b.contains(left.name) ? "a tensor in A, bytes in B" : "only in A");
      continue;
    }
    const Catalog::Tensor& right = b.catalog().tensors()[other];
    if (left.shape != right.shape) {
      differ(left.name, absl::StrCat("shape ", io::Shown(left.shape), " in A, ", io::Shown(right.shape), " in B"));
    } else if (!left.dtype || left.dtype != right.dtype) {
      const bool unknown = !left.dtype && !right.dtype && left.stored_dtype == right.stored_dtype;
      differ(left.name, unknown ? absl::StrCat("cannot be compared: elements of type ", status::View(DTypeText(left)))
                                : absl::StrCat("dtype ", status::View(DTypeText(left)), " in A, ",
                                               status::View(DTypeText(right)), " in B"));
    } else {
      pairs.push_back({left.name, static_cast<int64_t>(t), other, false, SizeOf(*left.dtype),
                       std::vector<int64_t>(left.shape.begin(), left.shape.end())});
      ++report.tensors;
    }
  }
  for (size_t i = 0; i < a.catalog().byte_items().size(); ++i) {
    const Catalog::ByteItem& left = a.catalog().byte_items()[i];
    const auto other = items_of_b.find(left.name);
    if (other == items_of_b.end()) {
      differ(left.name, index_in(b.catalog(), left.name) >= 0 ? "bytes in A, a tensor in B" : "only in A");
      continue;
    }
    const Catalog::ByteItem& right = b.catalog().byte_items()[other->second];
    if (left.place.length != right.place.length) {
      differ(left.name, absl::StrCat(left.place.length, " bytes in A, ", right.place.length, " in B"));
      continue;
    }
    pairs.push_back({left.name, static_cast<int64_t>(i), other->second, true, 1, {left.place.length}});
    ++report.byte_items;
  }
  absl::flat_hash_map<std::string_view, int64_t> items_of_a;
  for (const Catalog::ByteItem& item : a.catalog().byte_items()) items_of_a[item.name] = 0;
  const auto only_in_b = [&](std::string_view name) {
    if (index_in(a.catalog(), name) < 0 && !items_of_a.contains(name)) differ(name, "only in B");
  };
  for (const Catalog::Tensor& tensor : b.catalog().tensors()) only_in_b(tensor.name);
  for (const Catalog::ByteItem& item : b.catalog().byte_items()) only_in_b(item.name);

  // Attributes are small and already read. Attributes without their values cannot be told apart.
  std::deque<std::string> labels;
  const auto attribute_in = [](const Catalog& catalog, std::string_view name) -> const Catalog::Attribute* {
    for (const Catalog::Attribute& attribute : catalog.attributes()) {
      if (attribute.name == name && !attribute.of_files) return &attribute;
    }
    return nullptr;
  };
  for (const Catalog::Attribute& left : a.catalog().attributes()) {
    if (left.of_files) continue;
    const Catalog::Attribute* const right = attribute_in(b.catalog(), left.name);
    if (right != nullptr && !left.pickle.empty() && left.pickle == right->pickle) continue;
    differ(labels.emplace_back(left.Label()), right == nullptr      ? "only in A"
                                              : left.pickle.empty() ? "cannot be compared: it is not plain data"
                                                                    : "another value in B");
  }
  for (const Catalog::Attribute& right : b.catalog().attributes()) {
    if (right.of_files || attribute_in(a.catalog(), right.name) != nullptr) continue;
    differ(labels.emplace_back(right.Label()), "only in B");
  }

  std::vector<Task> tasks;
  for (size_t p = 0; p < pairs.size(); ++p) {
    const Pair& pair = pairs[p];
    if (pair.a < 0) continue;
    int64_t elements = 1;
    for (const int64_t size : pair.shape) elements *= size;
    report.bytes += elements * pair.element;
    for (catalog::Stripe& stripe : catalog::CutIntoStripes(pair.shape, pair.element, kStripe)) {
      tasks.push_back({p, std::move(stripe.box), stripe.first, stripe.count * pair.element});
    }
  }

  std::vector<Found> found(pairs.size());
  std::mutex mutex;
  tasks::ProgressMeter meter(report.bytes, progress);
  std::vector<std::pair<std::string, std::string>> buffers(static_cast<size_t>(threads));
  RETURN_IF_ERROR(tasks::RunTasks(
      static_cast<int64_t>(tasks.size()), threads,
      [&](int64_t i, int thread) -> absl::Status {
        const Task& task = tasks[i];
        const Pair& pair = pairs[task.pair];
        auto& [left, right] = buffers[thread];
        left.resize(task.bytes);
        right.resize(task.bytes);
        const auto read = [&](source::Source& source, int64_t index, std::string& into) {
          if (pair.is_item) return source.ReadItem(index, task.first, absl::MakeSpan(into));
          return source.Read(index, task.box.offset, task.box.size, absl::MakeSpan(into));
        };
        absl::Status status = read(a, pair.a, left);
        if (!status.ok()) return absl::Status(status.code(), absl::StrCat("A: ", status.message()));
        status = read(b, pair.b, right);
        if (!status.ok()) return absl::Status(status.code(), absl::StrCat("B: ", status.message()));
        Found here;
        FindRanges(left.data(), right.data(), task, pair.element, &here);
        if (here.elements > 0) {
          const std::lock_guard<std::mutex> lock(mutex);
          Found& all = found[task.pair];
          all.elements += here.elements;
          all.ranges.insert(all.ranges.end(), here.ranges.begin(), here.ranges.end());
        }
        meter.Add(task.bytes);
        return absl::OkStatus();
      },
      stop));
  meter.Finish();
  for (size_t p = 0; p < pairs.size(); ++p) {
    const auto known = differences.find(p);
    if (known != differences.end()) {
      report.differences.push_back({std::string(pairs[p].name), known->second});
    } else if (found[p].elements > 0) {
      int64_t all = 1;
      for (const int64_t size : pairs[p].shape) all *= size;
      report.differences.push_back({std::string(pairs[p].name), Describe(found[p], pairs[p], all)});
    }
  }
  return report;
}

}  // namespace reshard
