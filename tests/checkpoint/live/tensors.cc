#include "tests/checkpoint/live/tensors.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <utility>

#include "tests/oracle/holdings.h"
#include "tests/oracle/text.h"

namespace reshard::testing {

int64_t TestTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string ElementOf(const TestTensor& tensor, int64_t index) {
  std::string bytes;
  uint64_t value = (static_cast<uint64_t>(index) + 1) * 0x9E3779B97F4A7C15u + tensor.seed * 0xD1B54A32D192ED03u;
  for (int64_t i = 0; i < SizeOf(tensor.dtype); ++i) {
    value ^= value >> 29;
    bytes.push_back(static_cast<char>(value >> 8 & 0xff));
    value *= 0xBF58476D1CE4E5B9u;
  }
  return bytes;
}

void WriteSafetensors(const std::string& path, const std::vector<TestTensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const TestTensor& tensor : tensors) {
    const char* const dtype = tensor.dtype == DType::kI8    ? "I8"
                              : tensor.dtype == DType::kF16 ? "F16"
                              : tensor.dtype == DType::kF32 ? "F32"
                                                            : "F64";
    std::string shape;
    for (const int64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    const size_t begin = data.size();
    for (int64_t i = 0; i < tensor.elements(); ++i) data += ElementOf(tensor, i);
    header += (header.size() > 1 ? ",\"" : "\"") + tensor.name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) out.put(static_cast<char>(header.size() >> (8 * i) & 0xff));
  out << header << data;
}

Held HeldBy(const std::string& mesh_text, const std::string& layout_text, int64_t device) {
  const oracle::Mesh mesh = oracle::ParseMesh(mesh_text);
  const oracle::Layout layout = oracle::ParseLayout(layout_text, mesh);
  const int64_t position = mesh.Position(device);
  Held held;
  if (position < 0) return held;
  held.numbers = {0};
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    const std::vector<int64_t> along = oracle::InOrder(layout, d, position);
    std::vector<int64_t> numbers;
    for (const int64_t number : held.numbers) {
      for (const int64_t index : along) numbers.push_back(number * layout.dims[d].size + index);
    }
    held.numbers = std::move(numbers);
    held.shape.push_back(static_cast<int64_t>(along.size()));
  }
  return held;
}

int64_t Random::Pick(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(generator_);
}

std::string Random::MeshText(int64_t devices) {
  std::string axes;
  int64_t size = 1;
  for (const char name : {'A', 'B', 'C'}) {
    const int64_t axis = Pick(1, 4);
    if (size * axis > devices) continue;
    size *= axis;
    axes += (axes.empty() ? "" : ",") + std::string(1, name) + ":" + std::to_string(axis);
  }
  const int64_t first = Pick(0, devices - size);
  if (Chance(50)) return "{" + axes + "}" + (first > 0 ? "@" + std::to_string(first) : "");
  std::vector<int64_t> ids(static_cast<size_t>(devices));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), generator_);
  std::string text;
  for (int64_t i = 0; i < size; ++i) text += (i > 0 ? "," : "") + std::to_string(ids[i]);
  return "{" + axes + "}@[" + text + "]";
}

std::vector<int64_t> Random::Shape() {
  std::vector<int64_t> shape(static_cast<size_t>(Pick(0, 3)));
  for (int64_t& size : shape) size = Chance(10) ? Pick(0, 1) : Pick(2, 13);
  return shape;
}

std::string Random::LayoutText(const std::string& mesh_text, const std::vector<int64_t>& shape) {
  const oracle::Mesh mesh = oracle::ParseMesh(mesh_text);
  std::vector<std::string> factors(shape.size());
  std::vector<size_t> order(mesh.axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), generator_);
  for (const size_t axis : order) {
    if (shape.empty() || Chance(30)) continue;
    std::string& list = factors[Pick(0, static_cast<int64_t>(shape.size()) - 1)];
    if (!list.empty()) list += ",";
    if (Chance(15)) list += std::to_string(Pick(2, 3)) + ",";
    list += (Chance(15) ? "~" : "") + mesh.axes[axis].first;
  }
  bool has_table = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    for (const auto& [name, ranks] : mesh.axes) {
      if (factors[d] != name || shape[d] == 0 || has_table || !Chance(30)) continue;
      factors[d] += "={" + SlotsText(ranks, shape[d]) + "}";
      has_table = true;
    }
  }
  // Some neighboring dimensions are flattened, and axes that cut one of them may cut what is flattened instead.
  size_t first = shape.size(), last = first;
  std::string outer;
  if (!shape.empty() && !has_table && Chance(40)) {
    first = static_cast<size_t>(Pick(0, static_cast<int64_t>(shape.size()) - 1));
    last = static_cast<size_t>(Pick(static_cast<int64_t>(first), static_cast<int64_t>(shape.size()) - 1));
    for (size_t d = first; d <= last; ++d) {
      if (factors[d].empty() || factors[d].find_first_of("0123456789~") != std::string::npos || Chance(40)) continue;
      outer += (outer.empty() ? "" : ",") + std::exchange(factors[d], "");
    }
  }
  std::string text;
  for (size_t d = 0; d < shape.size(); ++d) {
    text += d > 0 ? ", " : "";
    if (d == first) text += (outer.empty() ? "" : "<" + outer + ">") + "(";
    text += (factors[d].empty() ? "" : "<" + factors[d] + ">") + std::to_string(shape[d]);
    if (d == last) text += ")";
  }
  return "[" + text + "]";
}

std::string Random::SlotsText(int64_t ranks, int64_t size) {
  std::vector<std::vector<int64_t>> slots(static_cast<size_t>(ranks));
  // Every index somewhere, then some more.
  for (int64_t index = 0; index < size; ++index) slots[Pick(0, ranks - 1)].push_back(index);
  std::string text;
  for (std::vector<int64_t>& mine : slots) {
    while (static_cast<int64_t>(mine.size()) < size && Chance(40)) mine.push_back(Pick(0, size - 1));
    std::shuffle(mine.begin(), mine.end(), generator_);
    if (&mine != &slots.front()) text += "|";
    for (size_t i = 0; i < mine.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(mine[i]);
  }
  return text;
}

std::vector<TestTensor> Random::Tensors() {
  std::vector<TestTensor> tensors(static_cast<size_t>(Pick(1, 5)));
  const DType dtypes[] = {DType::kI8, DType::kF16, DType::kF32, DType::kF64};
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = {"t" + std::to_string(i), dtypes[Pick(0, 3)], Shape(), generator_()};
  }
  return tensors;
}

}  // namespace reshard::testing
