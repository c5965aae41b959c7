// The signature of a plan: what must be equal on all ranks before they move data.
#ifndef RESHARD_RUNTIME_PROGRAM_PLAN_SIGNATURE_H_
#define RESHARD_RUNTIME_PROGRAM_PLAN_SIGNATURE_H_

#include "reshard/planner/plan.h"
#include "reshard/runtime/signature.h"

namespace reshard::program {

// Fields: dtype, shape, mesh, source, target mesh, target, steps.
Signature SignatureOf(const Plan& plan);

}  // namespace reshard::program

#endif  // RESHARD_RUNTIME_PROGRAM_PLAN_SIGNATURE_H_
