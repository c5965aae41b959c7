#include "python/core/module.h"

#include "reshard/planner/version.h"

NB_MODULE(_core, module) {
  module.def("version", &reshard::Version);
  reshard::core::AddLayouts(module);
  reshard::core::AddPlanning(module);
  reshard::core::AddCheckpoints(module);
  reshard::core::AddCommand(module);
}
