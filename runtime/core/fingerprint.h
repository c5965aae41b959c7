// What tells one problem from another across ranks and machines.
#ifndef RESHARD_RUNTIME_CORE_FINGERPRINT_H_
#define RESHARD_RUNTIME_CORE_FINGERPRINT_H_

#include <string_view>

#include "reshard/planner/plan.h"
#include "reshard/runtime/program.h"

namespace reshard {

// 128 bits of a text; the same on every machine. Tells mistakes apart, not attacks.
Fingerprint HashText(std::string_view text);

// Of meshes, layouts, dtype and steps, in their canonical text. Costs and reports do not count.
Fingerprint FingerprintOf(const Plan& plan);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_FINGERPRINT_H_
