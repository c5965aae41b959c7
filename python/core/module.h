// The parts of reshard._core, the compiled half of the Python package. It takes and returns texts, numbers and opaque
// plans; python/reshard builds the public API on top of them.
#ifndef RESHARD_PYTHON_CORE_MODULE_H_
#define RESHARD_PYTHON_CORE_MODULE_H_

#include <nanobind/nanobind.h>

namespace reshard::core {

// Layouts as values, and their pictures.
void AddLayouts(nanobind::module_& module);
// Problems, plans, batches, the judge of plans.
void AddPlanning(nanobind::module_& module);
// inspect, convert, verify, fingerprint.
void AddCheckpoints(nanobind::module_& module);
// The command itself.
void AddCommand(nanobind::module_& module);

}  // namespace reshard::core

#endif  // RESHARD_PYTHON_CORE_MODULE_H_
