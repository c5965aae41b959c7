// The messages that ranks exchange to agree before data moves, and the conclusions that they draw.
#ifndef RESHARD_RUNTIME_EXECUTE_AGREEMENT_H_
#define RESHARD_RUNTIME_EXECUTE_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "reshard/runtime/signature.h"

namespace reshard::execute {

// Payload of the errors that name ranks although their code does not say so, see NamesRanks.
inline constexpr absl::string_view kNamesRanks = "reshard/names-ranks";
// FailedPrecondition, with that payload: ranks disagree.
absl::Status DisagreementError(absl::string_view message);

// For calls on an object that an earlier error made unusable: that error, saying so. `what` is "communicator" or
// "executor".
absl::Status FailedEarlier(absl::string_view what, const absl::Status& lost);

// The record that every rank sends to every other rank at every call. It travels as bytes: fixed size, no pointers.
struct AgreementRecord {
  uint64_t version = 1;
  int64_t status_code = 0;  // of absl::StatusCode; 0: ready
  int64_t sequence = 0;     // how many calls this communicator has seen
  Fingerprint fingerprint;  // of the problem
  int64_t reserved[3] = {0, 0, 0};
};
static_assert(sizeof(AgreementRecord) == 64);

// True if all records are equal and no rank has an error: the usual case, which needs no details.
bool AllAgree(absl::Span<const AgreementRecord> records);

// What a rank sends only if something is wrong: the message of its error, else the fields of its problem.
std::string Details(const absl::Status& own, const Signature& problem);

// The conclusion. It is the same on every rank, except that a rank with an error of its own returns that one (as
// "rank 3: ..."). `ranks`, `records` and `details` have one entry per rank, in the same order. Errors: see
// Communicator::Agree.
absl::Status Verdict(absl::Span<const int64_t> ranks, absl::Span<const AgreementRecord> records,
                     absl::Span<const std::string> details);

// Record and details in one message of fixed size, for backends that exchange both together: on a GPU nothing waits for
// the outcome, so there can be no second exchange. Details that do not fit are truncated.
struct AgreementMessage {
  AgreementRecord record;
  int64_t length = 0;  // of the details
  char details[952] = {};
};
static_assert(sizeof(AgreementMessage) == 1024);

AgreementMessage MakeAgreementMessage(const absl::Status& own, const Signature& problem, int64_t sequence);

// OK if all agree, else the verdict. messages[r] is that of rank r. An error of this rank is treated like any other's.
absl::Status VerdictOf(absl::Span<const AgreementMessage> messages);

// "rank 3", "ranks 0, 1, 2", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 24 more".
std::string ListRanks(const std::vector<int64_t>& ranks);

}  // namespace reshard::execute

#endif  // RESHARD_RUNTIME_EXECUTE_AGREEMENT_H_
