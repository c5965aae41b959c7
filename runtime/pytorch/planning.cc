#include "runtime/pytorch/planning.h"

#include <c10/util/Exception.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/notation.h"
#include "reshard/layout/text.h"
#include "reshard/torch/redistribute.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::pytorch {
namespace {

// Planning asks nobody, so there is no rank to name.
std::string ValueOrThrow(const absl::StatusOr<std::string>& result) {
  if (result.ok()) return *result;
  const std::string message(result.status().message());
  if (absl::IsUnimplemented(result.status())) C10_THROW_ERROR(NotImplementedError, message);
  C10_THROW_ERROR(ValueError, message);
}

}  // namespace

std::string LayoutFromDTensor(c10::string_view placements, c10::string_view mesh, at::IntArrayRef shape) {
  return ValueOrThrow(status::NoThrow("reading placements", [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const Mesh parsed, ParseMesh(std::string(mesh)));
    ASSIGN_OR_RETURN(const Layout layout,
                     ImportLayout(Notation::kDTensor, std::string(placements), parsed, shape.vec()));
    return ToString(layout);
  }));
}

std::string LayoutToDTensor(c10::string_view layout, c10::string_view mesh, at::IntArrayRef shape) {
  return ValueOrThrow(status::NoThrow("reading a layout", [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const Mesh parsed, ParseMesh(std::string(mesh)));
    ASSIGN_OR_RETURN(const Layout meant, ImportLayout(Notation::kReshard, std::string(layout), parsed, shape.vec()));
    return ExportLayout(Notation::kDTensor, meant);
  }));
}

std::string RecentOperationsOf(c10::string_view group) {
  return TensorCommunicator::InUseOf(std::string(group))->RecentOperationsJson();
}

std::string LastTimingsOf(c10::string_view group) {
  const ExecuteResult result = TensorCommunicator::InUseOf(std::string(group))->last_result();
  const nlohmann::json object = {{"seconds", result.seconds},
                                 {"pack_seconds", result.moved.pack_seconds},
                                 {"communicate_seconds", result.moved.communicate_seconds},
                                 {"unpack_seconds", result.moved.unpack_seconds},
                                 {"received_bytes", result.moved.received},
                                 {"copied_local_bytes", result.moved.copied_local},
                                 {"written_bytes", result.moved.written}};
  return object.dump();
}

}  // namespace reshard::pytorch
