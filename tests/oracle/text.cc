#include "tests/oracle/text.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>

namespace oracle {
namespace {

// A cursor over the text; blanks between tokens are skipped.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c || c == '\0') return false;
    ++at_;
    return true;
  }
  void Need(char c) {
    if (!Take(c)) Fail(std::string("expected '") + c + "'");
  }
  bool AtInt() { return std::isdigit(static_cast<unsigned char>(Peek())) != 0; }
  int64_t Int() {
    if (!AtInt()) Fail("expected a number");
    int64_t value = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      if (value > (INT64_MAX - 9) / 10) Fail("a number is too large");
      value = value * 10 + (text_[at_++] - '0');
    }
    return value;
  }
  bool AtName() {
    const char c = Peek();
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
  }
  std::string Name() {
    if (!AtName()) Fail("expected a name");
    std::string name;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.') break;
      name += c;
      ++at_;
    }
    return name;
  }
  std::vector<int64_t> IntList() {
    Need('[');
    std::vector<int64_t> list = {Int()};
    while (Take(',')) list.push_back(Int());
    Need(']');
    return list;
  }
  void End() {
    if (Peek() != '\0') Fail("text goes on");
  }
  [[noreturn]] void Fail(const std::string& why) const {
    throw std::runtime_error("oracle: " + why + " at " + std::to_string(at_) + " in " + std::string(text_));
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

Ref ReadRef(Scanner& in, const Mesh& mesh, const std::string& name) {
  Ref ref;
  ref.axis = mesh.Axis(name);
  const int64_t n = mesh.axes[ref.axis].second;
  ref.size = n;
  if (in.Take(':')) {
    in.Need('(');
    ref.pre = in.Int();
    in.Need(')');
    ref.size = in.Int();
    if (ref.pre < 1 || ref.size < 1 || n % (ref.pre * ref.size) != 0) in.Fail("a sub-axis does not divide its axis");
  }
  return ref;
}

// {5,6|0-3||7}
std::vector<std::vector<int64_t>> ReadSlots(Scanner& in) {
  std::vector<std::vector<int64_t>> slots(1);
  in.Need('{');
  while (!in.Take('}')) {
    if (in.Take('|')) {
      slots.emplace_back();
    } else if (!in.Take(',')) {
      const int64_t first = in.Int();
      const int64_t last = in.Take('-') ? in.Int() : first;
      for (int64_t i = first; i <= last; ++i) slots.back().push_back(i);
    }
  }
  return slots;
}

Factor ReadFactor(Scanner& in, const Mesh& mesh) {
  Factor factor;
  if (in.AtInt()) {
    factor.is_digit = true;
    factor.parts = in.Int();
    if (factor.parts < 1) in.Fail("a digit below 1");
    return factor;
  }
  if (in.Take('~')) {
    factor.reflected = true;
    factor.ref.axis = mesh.Axis(in.Name());
    factor.ref.size = mesh.axes[factor.ref.axis].second;
  } else {
    factor.ref = ReadRef(in, mesh, in.Name());
    if (in.Take('=')) {
      if (in.Peek() == '{') {
        factor.slots = ReadSlots(in);
        if (static_cast<int64_t>(factor.slots.size()) != factor.ref.size) in.Fail("wrong number of lists of slots");
        factor.parts = factor.ref.size;
        return factor;
      }
      factor.sizes = in.IntList();
      if (static_cast<int64_t>(factor.sizes.size()) != factor.ref.size) in.Fail("wrong number of sizes");
    }
  }
  factor.parts = factor.ref.size;
  return factor;
}

std::vector<Factor> ReadFactors(Scanner& in, const Mesh& mesh) {
  std::vector<Factor> factors;
  const char close = in.Take('<') ? '>' : (in.Need('{'), '}');
  if (in.Take(close)) return factors;
  do {
    factors.push_back(ReadFactor(in, mesh));
  } while (in.Take(','));
  in.Need(close);
  return factors;
}

Dim ReadDim(Scanner& in, const Mesh& mesh) {
  Dim dim;
  const bool starts_with_number = in.AtInt();
  const int64_t number = starts_with_number ? in.Int() : -1;
  const bool cut = in.Peek() == '<' || in.Peek() == '{';
  if (cut) dim.factors = ReadFactors(in, mesh);
  if (in.Take('(')) {
    dim.local = number;
    dim.size = 1;
    do {
      dim.flattened.push_back(ReadDim(in, mesh));
      dim.size *= dim.flattened.back().size;
    } while (in.Take(','));
    in.Need(')');
  } else if (cut) {
    dim.local = number;
    dim.size = in.Int();
  } else {
    if (!starts_with_number) in.Fail("expected a size");
    dim.size = number;
  }
  return dim;
}

void AddRefs(const Dim& dim, std::vector<Ref>& refs) {
  for (const Dim& inner : dim.flattened) AddRefs(inner, refs);
  for (const Factor& factor : dim.factors) {
    if (!factor.is_digit) refs.push_back(factor.ref);
  }
}

void AddSizes(const Dim& dim, std::vector<int64_t>& sizes) {
  if (dim.flattened.empty()) sizes.push_back(dim.size);
  for (const Dim& inner : dim.flattened) AddSizes(inner, sizes);
}

void CheckLocal(const Dim& dim, const Mesh& mesh, const Scanner& in) {
  for (const Dim& inner : dim.flattened) CheckLocal(inner, mesh, in);
  if (dim.local < 0) return;
  int64_t largest = 0;
  if (SlotTable(dim) != nullptr || !dim.flattened.empty()) {
    for (int64_t p = 0; p < mesh.size(); ++p) {
      largest = std::max(largest, static_cast<int64_t>(HeldIndices(mesh, dim, p).size()));
    }
  } else {
    // Every combination of coordinates belongs to some device.
    std::map<std::vector<int64_t>, int64_t> count;
    for (int64_t i = 0; i < dim.size; ++i) largest = std::max(largest, ++count[RequiredCoordinates(dim, i)]);
  }
  if (largest != dim.local) in.Fail("the local size is " + std::to_string(largest) + ", not as written,");
}

// The two may not share a digit of one axis: one must lie in front of the other.
bool Overlap(const Ref& a, const Ref& b) {
  if (a.axis != b.axis) return false;
  const Ref& front = a.pre <= b.pre ? a : b;
  const Ref& back = a.pre <= b.pre ? b : a;
  return back.pre % (front.pre * front.size) != 0;
}

void CheckUsedOnce(const Layout& layout, const Scanner& in) {
  std::vector<Ref> refs = layout.partial;
  for (const Dim& dim : layout.dims) AddRefs(dim, refs);
  for (size_t i = 0; i < refs.size(); ++i) {
    for (size_t j = i + 1; j < refs.size(); ++j) {
      if (Overlap(refs[i], refs[j])) in.Fail("an axis is used twice");
    }
  }
}

}  // namespace

size_t Mesh::Axis(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].first == name) return i;
  }
  throw std::runtime_error("oracle: no axis " + std::string(name));
}

int64_t Mesh::Position(int64_t device) const {
  const auto found = std::find(ids.begin(), ids.end(), device);
  return found == ids.end() ? -1 : found - ids.begin();
}

int64_t Coordinate(const Mesh& mesh, const Ref& ref, int64_t position) {
  int64_t below = 1;
  for (size_t i = ref.axis + 1; i < mesh.axes.size(); ++i) below *= mesh.axes[i].second;
  const int64_t n = mesh.axes[ref.axis].second;
  const int64_t coordinate = position / below % n;
  return coordinate / (n / (ref.pre * ref.size)) % ref.size;
}

std::vector<int64_t> Layout::shape() const {
  std::vector<int64_t> shape;
  for (const Dim& dim : dims) AddSizes(dim, shape);
  return shape;
}

Mesh ParseMesh(std::string_view text) {
  Scanner in(text);
  Mesh mesh;
  in.Need('{');
  int64_t size = 1;
  if (!in.Take('}')) {
    do {
      std::string name = in.Name();
      in.Need(':');
      const int64_t n = in.Int();
      if (n < 1) in.Fail("an axis below 1");
      mesh.axes.emplace_back(std::move(name), n);
      size *= n;
      if (size > (int64_t{1} << 22)) in.Fail("too many devices");
    } while (in.Take(','));
    in.Need('}');
  }
  if (in.Take('@')) {
    if (in.Peek() == '[') {
      mesh.ids = in.IntList();
      if (mesh.size() != size) in.Fail("wrong number of device ids");
    } else {
      const int64_t first = in.Int();
      for (int64_t i = 0; i < size; ++i) mesh.ids.push_back(first + i);
    }
  } else {
    for (int64_t i = 0; i < size; ++i) mesh.ids.push_back(i);
  }
  in.End();
  return mesh;
}

Ref ParseRef(std::string_view text, const Mesh& mesh) {
  Scanner in(text);
  const Ref ref = ReadRef(in, mesh, in.Name());
  in.End();
  return ref;
}

Layout ParseLayout(std::string_view text, const Mesh& mesh) {
  Scanner in(text);
  Layout layout;
  layout.mesh = mesh;
  in.Need('[');
  if (!in.Take(']')) {
    do {
      layout.dims.push_back(ReadDim(in, mesh));
    } while (in.Take(','));
    in.Need(']');
  }
  if (in.AtName()) {
    layout.partial_op = in.Name();
    in.Need('<');
    do {
      layout.partial.push_back(ReadRef(in, mesh, in.Name()));
    } while (in.Take(','));
    in.Need('>');
  }
  in.End();
  CheckUsedOnce(layout, in);
  for (const Dim& dim : layout.dims) CheckLocal(dim, mesh, in);
  return layout;
}

std::vector<int64_t> RequiredCoordinates(const Dim& dim, int64_t index) {
  std::vector<int64_t> required;
  int64_t begin = 0;
  int64_t end = dim.size;
  int64_t number = 0;  // of the interval [begin, end) among all intervals of a device
  for (const Factor& factor : dim.factors) {
    int64_t part = 0;
    int64_t part_begin = begin;
    int64_t part_end = end;
    if (!factor.sizes.empty()) {
      int64_t sum = 0;
      for (const int64_t s : factor.sizes) sum += s;
      if (sum != end - begin) throw std::runtime_error("oracle: explicit sizes do not add up");
      while (index >= part_begin + factor.sizes[part]) {
        part_begin += factor.sizes[part++];
      }
      part_end = part_begin + factor.sizes[part];
    } else {
      const int64_t chunk = (end - begin + factor.parts - 1) / factor.parts;
      part = (index - begin) / chunk;
      part_begin = begin + part * chunk;
      part_end = std::min(end, part_begin + chunk);
    }
    if (factor.is_digit) {
      number = number * factor.parts + part;
    } else {
      required.push_back(factor.reflected && number % 2 == 1 ? factor.parts - 1 - part : part);
    }
    begin = part_begin;
    end = part_end;
  }
  return required;
}

const Factor* SlotTable(const Dim& dim) {
  return !dim.factors.empty() && !dim.factors[0].slots.empty() ? &dim.factors[0] : nullptr;
}

std::vector<int64_t> HeldIndices(const Mesh& mesh, const Dim& dim, int64_t position) {
  if (const Factor* table = SlotTable(dim)) return table->slots[Coordinate(mesh, table->ref, position)];
  // What is held before the factors cut it, in order: everything, or what is held of the flattened dimensions.
  Dim whole{dim.size, -1, dim.factors, {}};
  std::vector<int64_t> indices;
  if (dim.flattened.empty()) {
    for (int64_t i = 0; i < dim.size; ++i) indices.push_back(i);
  } else {
    indices = {0};
    for (const Dim& inner : dim.flattened) {
      std::vector<int64_t> longer;
      const std::vector<int64_t> along = HeldIndices(mesh, inner, position);
      for (const int64_t prefix : indices) {
        for (const int64_t i : along) longer.push_back(prefix * inner.size + i);
      }
      indices = std::move(longer);
    }
    whole.size = static_cast<int64_t>(indices.size());
  }
  std::vector<int64_t> own;
  for (const Factor& factor : dim.factors) {
    if (!factor.is_digit) own.push_back(Coordinate(mesh, factor.ref, position));
  }
  std::vector<int64_t> out;
  for (int64_t i = 0; i < whole.size; ++i) {
    if (RequiredCoordinates(whole, i) == own) out.push_back(indices[i]);
  }
  return out;
}

bool Holds(const Layout& layout, size_t dim, int64_t index, int64_t position) {
  const std::vector<int64_t> held = HeldIndices(layout.mesh, layout.dims[dim], position);
  return std::find(held.begin(), held.end(), index) != held.end();
}

}  // namespace oracle
