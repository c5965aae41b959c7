// What the importers and exporters of other notations share. One file a notation; notation.cc chooses among them and
// checks every export by importing it again.
#ifndef RESHARD_LAYOUT_NOTATION_FOREIGN_H_
#define RESHARD_LAYOUT_NOTATION_FOREIGN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "layout/scanner.h"
#include "reshard/layout/layout.h"

namespace reshard::notation {

using Shape = std::vector<int64_t>;

absl::StatusOr<Layout> ImportDTensor(std::string_view text, const Mesh& mesh, const Shape& shape);
absl::StatusOr<Layout> ImportJax(std::string_view text, const Mesh& mesh, const Shape& shape);
absl::StatusOr<Layout> ImportShardy(std::string_view text, const Mesh& mesh, const Shape& shape);
absl::StatusOr<Layout> ImportHlo(std::string_view text, const Mesh& mesh, const Shape& shape);

absl::StatusOr<std::string> ExportDTensor(const Layout& layout);
absl::StatusOr<std::string> ExportJax(const Layout& layout);
absl::StatusOr<std::string> ExportShardy(const Layout& layout);
absl::StatusOr<std::string> ExportHlo(const Layout& layout);

// JAX, Shardy and HLO cut a dimension over all its axes in one go, into shards of ceil(n / product), where a layout
// cuts axis by axis. Unimplemented where the two differ: for some uneven sizes over several axes.
absl::Status CheckCutInOneGo(const layout::Scanner& in, const Layout& layout, std::string_view notation);

// Unimplemented: <notation> cannot say <what>.
absl::Status CannotSay(std::string_view notation, std::string_view what);

// The factors of a dimension that have an effect, as axes (neighboring parts joined) and integer digits. Reflected axes
// and explicit sizes count as axes where they cut like them (no digit in front, the usual sizes); others cannot be
// said.
absl::StatusOr<std::vector<Factor>> PlainFactors(const Layout& layout, int d, std::string_view notation);

// The same for a notation that has only axes.
absl::StatusOr<std::vector<AxisRef>> OnlyAxes(const Layout& layout, int d, std::string_view notation);

// The axes of the partial reduction, joined; Unimplemented when the notation only has sums and it is none.
absl::StatusOr<std::vector<AxisRef>> OnlySums(const Layout& layout, std::string_view notation);

// Unimplemented when a reference is a part of an axis.
absl::Status CheckWhole(const Mesh& mesh, const std::vector<AxisRef>& refs, std::string_view notation);

}  // namespace reshard::notation

#endif  // RESHARD_LAYOUT_NOTATION_FOREIGN_H_
