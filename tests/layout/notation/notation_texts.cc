#include "tests/layout/notation/notation_texts.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/text.h"
#include "tests/layout/gen.h"

namespace reshard::testing {

std::string Imported(Notation notation, std::string_view text, std::string_view mesh,
                     const std::vector<int64_t>& shape) {
  const absl::StatusOr<Layout> layout = ImportLayout(notation, text, MeshOf(mesh), shape);
  if (layout.ok()) return ToString(*layout);
  const std::string message = Message(layout.status());
  return (layout.status().code() == absl::StatusCode::kUnimplemented ? "unsupported: " : "") +
         message.substr(0, message.find('\n'));
}

std::string Exported(Notation notation, std::string_view layout, std::string_view mesh) {
  const absl::StatusOr<std::string> text = ExportLayout(notation, LayoutOf(layout, mesh));
  return text.ok() ? *text : "unsupported: " + Message(text.status());
}

}  // namespace reshard::testing
