// What `reshard check` reports.
#ifndef RESHARD_CHECK_FINDING_H_
#define RESHARD_CHECK_FINDING_H_

#include <string>

namespace reshard {

// Something that is wrong in a plan.
struct Finding {
  std::string where;  // "steps[1].recv_bytes_max", "pieces[17]", ...
  std::string said;   // the value claimed there, as text; empty if the plan claims none
  std::string is;     // the actual value, as text; empty if `why` says it all
  std::string why;    // one sentence
};

}  // namespace reshard

#endif  // RESHARD_CHECK_FINDING_H_
