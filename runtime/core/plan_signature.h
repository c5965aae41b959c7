// The signature of a plan: what all ranks must have in common before they move data.
#ifndef RESHARD_RUNTIME_CORE_PLAN_SIGNATURE_H_
#define RESHARD_RUNTIME_CORE_PLAN_SIGNATURE_H_

#include "reshard/planner/plan.h"
#include "reshard/runtime/signature.h"

namespace reshard {

// Fields: dtype, shape, mesh, source, target mesh, target, steps.
Signature SignatureOf(const Plan& plan);

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CORE_PLAN_SIGNATURE_H_
