// What ranks tell each other before data moves, and what they conclude.
#ifndef RESHARD_RUNTIME_CORE_AGREEMENT_H_
#define RESHARD_RUNTIME_CORE_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "reshard/runtime/signature.h"

namespace reshard {

// The record that every rank sends to every other at every call. Fixed size, no pointers: it travels as bytes.
struct AgreementRecord {
  uint64_t version = 1;
  int64_t status_code = 0;  // of absl::StatusCode; 0: ready
  int64_t sequence = 0;     // how many calls this communicator has seen
  Fingerprint fingerprint;  // of the problem
  int64_t reserved[3] = {0, 0, 0};
};
static_assert(sizeof(AgreementRecord) == 64);

// True when all records are the same and nobody brought an error: the usual case, which needs no details.
bool AllAgree(absl::Span<const AgreementRecord> records);

// What a rank tells only when something is wrong: the message of its error, else the fields of its problem.
std::string Details(const absl::Status& own, const Signature& problem);

// The conclusion, the same on every rank but for `own` errors, which their rank keeps (as "rank 3: ..."). `ranks`,
// `records` and `details` have one entry a rank, in the same order. Errors: see Communicator::Agree.
absl::Status Verdict(absl::Span<const int64_t> ranks, absl::Span<const AgreementRecord> records,
                     absl::Span<const std::string> details);

// Record and details in one message of fixed size, for backends that exchange both at once: on a GPU nobody waits for
// the outcome, so there is no second exchange. Details that do not fit are cut.
struct AgreementMessage {
  AgreementRecord record;
  int64_t length = 0;  // of the details
  char details[952] = {};
};
static_assert(sizeof(AgreementMessage) == 1024);

AgreementMessage MakeAgreementMessage(const absl::Status& own, const Signature& problem, int64_t sequence);

// OK when all agree, else the verdict. messages[r] is rank r's. A message of this rank that brought an error is judged
// like everybody's.
absl::Status VerdictOf(absl::Span<const AgreementMessage> messages);

// "rank 3", "ranks 0, 1, 2", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 24 more".
std::string ListRanks(const std::vector<int64_t>& ranks);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_AGREEMENT_H_
