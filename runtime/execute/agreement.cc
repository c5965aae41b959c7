#include "runtime/execute/agreement.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace reshard::execute {
namespace {

// Between names and values.
constexpr absl::string_view kEndOfText("\0", 1);

// Longer values are truncated in messages.
constexpr size_t kShownValue = 300;

std::string Shown(const std::string& value) {
  return value.size() <= kShownValue ? value : absl::StrCat(value.substr(0, kShownValue), "...");
}

std::vector<Signature::Field> ParseFields(const std::string& details) {
  const std::vector<std::string> parts = absl::StrSplit(details, '\0');
  std::vector<Signature::Field> fields;
  for (size_t i = 0; i + 1 < parts.size(); i += 2) fields.push_back({parts[i], parts[i + 1]});
  return fields;
}

// `values`: one field's value on each rank, or its name if the names differ.
absl::Status Disagreement(const std::string& field, absl::Span<const int64_t> ranks,
                          const std::vector<std::string>& values) {
  std::map<std::string, std::vector<int64_t>> ranks_of;
  for (size_t i = 0; i < values.size(); ++i) ranks_of[values[i]].push_back(ranks[i]);
  std::vector<std::pair<std::string, std::vector<int64_t>>> sides(ranks_of.begin(), ranks_of.end());
  // The majority first; among equals the side of the lowest rank.
  std::stable_sort(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() > b.second.size() : a.second[0] < b.second[0];
  });
  std::string text = absl::StrCat("ranks disagree on ", field, ": ");
  constexpr size_t kShownSides = 4;
  for (size_t i = 0; i < sides.size() && i < kShownSides; ++i) {
    const bool one = sides[i].second.size() == 1;
    absl::StrAppend(&text, i > 0 ? "; " : "", ListRanks(sides[i].second), one ? " has " : " have ",
                    i > 0 ? absl::StrCat("another ", field, ": ") : "", Shown(sides[i].first));
  }
  if (sides.size() > kShownSides) absl::StrAppend(&text, "; and ", sides.size() - kShownSides, " more sides");
  return DisagreementError(text);
}

}  // namespace

absl::Status DisagreementError(absl::string_view message) {
  absl::Status status = absl::FailedPreconditionError(message);
  status.SetPayload(kNamesRanks, absl::Cord());
  return status;
}

absl::Status FailedEarlier(absl::string_view what, const absl::Status& lost) {
  absl::Status status(lost.code(), absl::StrCat("this ", what, " was lost earlier: ", lost.message()));
  lost.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { status.SetPayload(type, payload); });
  return status;
}

std::string ListRanks(const std::vector<int64_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) absl::StrAppend(&out, i > 0 ? ", " : "", ranks[i]);
  if (ranks.size() > kShown) absl::StrAppend(&out, " and ", ranks.size() - kShown, " more");
  return out;
}

bool AllAgree(absl::Span<const AgreementRecord> records) {
  return std::all_of(records.begin(), records.end(), [&](const AgreementRecord& record) {
    return record.status_code == 0 && record.version == records[0].version && record.sequence == records[0].sequence &&
           record.fingerprint == records[0].fingerprint;
  });
}

std::string Details(const absl::Status& own, const Signature& problem) {
  if (!own.ok()) return std::string(own.message());
  std::string text;
  for (const Signature::Field& field : problem.fields) {
    absl::StrAppend(&text, field.name, kEndOfText, field.value, kEndOfText);
  }
  return text;
}

absl::Status Verdict(absl::Span<const int64_t> ranks, absl::Span<const AgreementRecord> records,
                     absl::Span<const std::string> details) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].status_code != 0) {
      return absl::AbortedError(absl::StrCat("rank ", ranks[i], " failed: ", details[i]));
    }
  }
  const auto compare = [&](const char* name, auto value_of) {
    std::vector<std::string> values;
    for (const AgreementRecord& record : records) values.push_back(absl::StrCat(value_of(record)));
    const bool same = std::all_of(values.begin(), values.end(), [&](const auto& v) { return v == values[0]; });
    return same ? absl::OkStatus() : Disagreement(name, ranks, values);
  };
  absl::Status status = compare("version", [](const AgreementRecord& r) { return r.version; });
  if (!status.ok()) return status;

  std::vector<std::vector<Signature::Field>> fields;
  for (const std::string& text : details) fields.push_back(ParseFields(text));
  size_t most = 0;
  for (const auto& list : fields) most = std::max(most, list.size());
  for (size_t k = 0; k < most; ++k) {
    std::string name;
    bool same_name = true;
    std::vector<std::string> names;
    std::vector<std::string> values;
    for (const auto& list : fields) {
      names.push_back(k < list.size() ? list[k].name : "nothing");
      values.push_back(k < list.size() ? list[k].value : "nothing");
      same_name &= names.back() == names[0];
    }
    if (!same_name) return Disagreement("operation", ranks, names);
    if (std::any_of(values.begin(), values.end(), [&](const auto& v) { return v != values[0]; })) {
      return Disagreement(names[0], ranks, values);
    }
  }
  status = compare("number of calls so far", [](const AgreementRecord& r) { return r.sequence; });
  if (!status.ok()) return status;
  return DisagreementError("ranks disagree on the plan, but no field that they sent differs");
}

AgreementMessage MakeAgreementMessage(const absl::Status& own, const Signature& problem, int64_t sequence) {
  AgreementMessage message;
  message.record.status_code = static_cast<int64_t>(own.code());
  message.record.sequence = sequence;
  if (own.ok()) message.record.fingerprint = problem.fingerprint;
  std::string details;
  if (own.ok()) {
    // As many fields as fit: a batch has thousands.
    for (const Signature::Field& field : problem.fields) {
      if (details.size() >= sizeof(message.details)) break;
      absl::StrAppend(&details, field.name, kEndOfText, field.value, kEndOfText);
    }
  } else {
    details = std::string(own.message());
  }
  message.length = static_cast<int64_t>(std::min(details.size(), sizeof(message.details)));
  std::copy_n(details.begin(), message.length, message.details);
  return message;
}

absl::Status VerdictOf(absl::Span<const AgreementMessage> messages) {
  std::vector<AgreementRecord> records;
  records.reserve(messages.size());
  for (const AgreementMessage& message : messages) records.push_back(message.record);
  if (AllAgree(records)) return absl::OkStatus();
  std::vector<int64_t> ranks;
  std::vector<std::string> details;
  for (const AgreementMessage& message : messages) {
    ranks.push_back(static_cast<int64_t>(ranks.size()));
    const auto length = std::clamp<int64_t>(message.length, 0, sizeof(message.details));
    details.emplace_back(message.details, static_cast<size_t>(length));
  }
  return Verdict(ranks, records, details);
}

}  // namespace reshard::execute
