// The oracle's own reading of mesh and layout texts. It shares no code with the library: plain structs, a parser that
// throws std::runtime_error, and one function that says which device coordinates an element belongs to.
#ifndef RESHARD_TESTS_ORACLE_TEXT_H_
#define RESHARD_TESTS_ORACLE_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oracle {

struct Mesh {
  std::vector<std::pair<std::string, int64_t>> axes;
  std::vector<int64_t> ids;  // of every position, row-major

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  // Index of the axis; throws when there is none.
  size_t Axis(std::string_view name) const;
  // The position of a device id, or -1.
  int64_t Position(int64_t device) const;
};

// A mesh axis read as the digits (pre, size, rest): the middle one.
struct Ref {
  size_t axis = 0;
  int64_t pre = 1;
  int64_t size = 1;
};
int64_t Coordinate(const Mesh& mesh, const Ref& ref, int64_t position);

struct Factor {
  bool is_digit = false;                    // an integer digit: every device keeps all blocks
  bool reflected = false;                   // ~X
  int64_t parts = 1;                        // chunks it cuts an interval into
  Ref ref;                                  // not for digits
  std::vector<int64_t> sizes;               // explicit sizes, or empty
  std::vector<std::vector<int64_t>> slots;  // a slot table: per coordinate the index in each slot; or empty
};

struct Dim {
  int64_t size = 0;
  int64_t local = -1;  // the local size that was written, or -1
  std::vector<Factor> factors;
  std::vector<Dim> flattened;  // dimensions that are flattened into this one, or none
};

struct Layout {
  Mesh mesh;
  std::vector<Dim> dims;
  std::string partial_op;  // empty: nothing is partial
  std::vector<Ref> partial;

  std::vector<int64_t> shape() const;
};

Mesh ParseMesh(std::string_view text);
Layout ParseLayout(std::string_view text, const Mesh& mesh);
// One axis reference as `axes` of a step prints it: X or X:(pre)size.
Ref ParseRef(std::string_view text, const Mesh& mesh);

// The dimension's slot table, or null.
const Factor* SlotTable(const Dim& dim);

// For every axis factor of the dimension, which has no slot table, the coordinate that a device must have to hold
// element `index`, in order.
std::vector<int64_t> RequiredCoordinates(const Dim& dim, int64_t index);

// Whether the device at `position` holds element `index` along a dimension.
bool Holds(const Layout& layout, size_t dim, int64_t index, int64_t position);
// The indices of a dimension that the device at a position holds, in local order; with slots an index may come twice.
std::vector<int64_t> HeldIndices(const Mesh& mesh, const Dim& dim, int64_t position);

}  // namespace oracle

#endif  // RESHARD_TESTS_ORACLE_TEXT_H_
