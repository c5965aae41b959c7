#include "runtime/self_test/logical_content.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/host/half.h"

namespace reshard::self_test {
namespace {

uint64_t Hash(uint64_t x, uint64_t salt) {
  x = (x + salt * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 32)) * 0x94D049BB133111EBull;
  return x ^ (x >> 29);
}

// Calls visit(local index, global linear index, length) for the stretches in which both indices run side by side, in
// local order.
template <typename Visit>
void ForEachStretch(const Layout& layout, int64_t position, Visit visit) {
  const size_t rank = static_cast<size_t>(layout.rank());
  std::vector<std::vector<Interval>> intervals(rank);
  std::vector<int64_t> pitch(rank, 1);  // global linear distance of neighbors along the dimension
  for (size_t d = rank; d-- > 0;) {
    if (d + 1 < rank) pitch[d] = pitch[d + 1] * layout.dim(static_cast<int>(d + 1)).size;
    intervals[d] = layout.Intervals(position, static_cast<int>(d));
    if (intervals[d].empty()) return;
  }
  if (rank == 0) return visit(int64_t{0}, int64_t{0}, int64_t{1});
  std::vector<size_t> at(rank, 0);      // interval of each dimension but the last
  std::vector<int64_t> index(rank, 0);  // global index
  int64_t base = 0;                     // of the outer dimensions' indices
  for (size_t d = 0; d + 1 < rank; ++d) {
    index[d] = intervals[d][0].begin;
    base += index[d] * pitch[d];
  }
  int64_t local = 0;
  while (true) {
    for (const Interval& stretch : intervals[rank - 1]) {
      visit(local, base + stretch.begin, stretch.length());
      local += stretch.length();
    }
    size_t d = rank - 1;
    while (d-- > 0) {
      const int64_t before = index[d];
      bool carry = false;
      if (++index[d] == intervals[d][at[d]].end) {
        carry = ++at[d] == intervals[d].size();
        if (carry) at[d] = 0;
        index[d] = intervals[d][at[d]].begin;
      }
      base += (index[d] - before) * pitch[d];
      if (!carry) break;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

// True when the digits `part` of an axis lie within those of `whole`.
bool Within(const AxisRef& part, const AxisRef& whole) {
  return part.axis == whole.axis && part.pre >= whole.pre && part.pre * part.size <= whole.pre * whole.size;
}

// What a device adds to the average; adds up to 0 along a digit of size s >= 2.
int64_t Deviation(int64_t coordinate, int64_t s) {
  if (s % 2 != 0) {
    if (coordinate < 2) return 1;
    if (coordinate == 2) return -2;
    return coordinate % 2 == 1 ? 1 : -1;
  }
  return coordinate % 2 == 0 ? 1 : -1;
}

template <typename T>
void Put(char* element, T value) {
  std::memcpy(element, &value, sizeof(value));
}

// The code of an integer that an f8 type with this many mantissa bits holds exactly.
uint8_t Float8Of(int64_t value, int mantissa_bits, int bias) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<uint64_t>(value < 0 ? -value : value);
  const int exponent = static_cast<int>(std::bit_width(magnitude)) - 1;
  const uint64_t mantissa = (magnitude << mantissa_bits >> exponent) - (uint64_t{1} << mantissa_bits);
  const uint64_t code = (static_cast<uint64_t>(exponent + bias) << mantissa_bits) + mantissa;
  return static_cast<uint8_t>(code + (value < 0 ? 0x80 : 0));
}

bool IsFloat8(DType dtype) {
  return dtype == DType::kF8E4M3FN || dtype == DType::kF8E5M2 || dtype == DType::kF8E4M3FNUZ ||
         dtype == DType::kF8E5M2FNUZ;
}

}  // namespace

absl::StatusOr<LogicalContent> LogicalContent::Create(const Plan& plan, uint64_t salt) {
  LogicalContent content;
  content.dtype_ = plan.dtype;
  content.salt_ = salt;
  if (!plan.source.partial()) return content;
  content.op_ = plan.source.partial()->op;
  const Mesh& mesh = plan.source.mesh();
  // Where the partial sub-axes of any layout of the plan begin and end.
  std::vector<const Layout*> layouts = {&plan.source, &plan.target};
  for (const Step& step : plan.steps) layouts.push_back(&step.to);
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<int64_t> cuts;
    for (const Layout* layout : layouts) {
      if (!layout->partial()) continue;
      for (const AxisRef& ref : layout->partial()->axes) {
        if (ref.axis == axis) cuts.insert(cuts.end(), {ref.pre, ref.pre * ref.size});
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i + 1] % cuts[i] != 0) {
        return absl::UnimplementedError(
            absl::StrCat("checking partial sub-axes of ", mesh.axis(axis).name, " that have no common digits"));
      }
      const AxisRef digit{axis, cuts[i], cuts[i + 1] / cuts[i]};
      for (const AxisRef& ref : plan.source.partial()->axes) {
        if (Within(digit, ref)) {
          content.digits_.push_back(digit);
          content.contributions_ *= digit.size;
        }
      }
    }
  }
  return content;
}

// All contributions that are combined in what the device holds: every coordinate along the reduced digits, the
// device's own along those that are still partial.
std::vector<LogicalContent::Contributor> LogicalContent::ContributorsTo(const Layout& layout, int64_t position) const {
  std::vector<Contributor> out = {{}};
  for (const AxisRef& digit : digits_) {
    bool kept = false;
    if (layout.partial()) {
      for (const AxisRef& ref : layout.partial()->axes) kept |= Within(digit, ref);
    }
    const int64_t own = kept ? layout.Coordinate(position, digit) : 0;
    std::vector<Contributor> next;
    for (const Contributor& contributor : out) {
      for (int64_t c = kept ? own : 0; c < (kept ? own + 1 : digit.size); ++c) {
        next.push_back(contributor);
        next.back().coordinates.push_back(c);
        next.back().number = contributor.number * digit.size + c;
      }
    }
    out = std::move(next);
  }
  return out;
}

LogicalContent::Number LogicalContent::Contribution(uint64_t hash, const Contributor& contributor) const {
  const auto y = static_cast<uint64_t>(contributor.number);
  const auto all = static_cast<uint64_t>(contributions_);
  // At most `most` of the contributions, evenly spread, are not neutral; which ones depends on the element.
  const auto chosen = [&](uint64_t most) { return (hash + y) % ((all + most - 1) / most) == 0; };
  const ReduceOp op = *op_;
  if (dtype_ == DType::kBool) {
    // One contribution decides, or (in 1 of all+1 elements) none.
    const bool decides = (hash + y) % (all + 1) == 0;
    return {op == ReduceOp::kSum || op == ReduceOp::kMax ? decides : !decides, 0};
  }
  const bool f8 = IsFloat8(dtype_);  // holds integers up to 8
  switch (op) {
    case ReduceOp::kSum:  // at most 65 * 3, exact in bf16; 4 * 2
      if (!chosen(f8 ? 3 : 64)) return {0, 0};
      return {static_cast<int64_t>(1 + ((hash >> 32) + y * 7) % (f8 ? 2 : 3)),
              static_cast<int64_t>(1 + ((hash >> 40) + y * 5) % 3)};
    case ReduceOp::kAvg: {
      Number value{static_cast<int64_t>(32 + (hash >> 16) % 32), static_cast<int64_t>(32 + (hash >> 24) % 32)};
      size_t every = 1;  // one of this many digits adds to the average
      if (f8) {          // at most four do, the result stays between 3 - 4 * 2 and 4 + 4
        value.re = static_cast<int64_t>(3 + (hash >> 16) % 2);
        every = (digits_.size() + 3) / 4;
      }
      for (size_t i = 0; i < digits_.size(); ++i) {
        const int64_t size = digits_[i].size;
        if (size == 1 || (hash % every + i) % every != 0) continue;
        const auto turn = static_cast<int64_t>((hash >> (i % 16)) % static_cast<uint64_t>(size));
        const int64_t deviation = Deviation((contributor.coordinates[i] + turn) % size, size);
        value.re += deviation;
        value.im -= deviation;
      }
      return value;
    }
    case ReduceOp::kMin:
    case ReduceOp::kMax: {
      // The chosen one is the extreme.
      const bool extreme = (hash >> 20) % all == y;
      const uint64_t others = f8 ? 7 : 100;
      if (extreme) return {op == ReduceOp::kMin ? 0 : static_cast<int64_t>(others + 1), 0};
      return {static_cast<int64_t>(1 + Hash(hash, y + 1) % others), 0};
    }
    case ReduceOp::kProd: {  // at most 3^5, exact in bf16; powers of two and their negatives
      if (!chosen(4)) return {1, 0};
      const bool other = (hash >> (y % 31 + 16)) & 1;
      if (f8) return {other ? -2 : 2, 0};
      const int64_t factor = other ? 3 : 2;
      if (dtype_ == DType::kC64 || dtype_ == DType::kC128) return {1, factor - 1};
      return {factor, 0};
    }
  }
  return {};
}

LogicalContent::Number LogicalContent::Reduced(int64_t global, const std::vector<Contributor>& contributors) const {
  const uint64_t hash = Hash(static_cast<uint64_t>(global), salt_);
  Number out = Contribution(hash, contributors[0]);
  for (size_t i = 1; i < contributors.size(); ++i) {
    const Number x = Contribution(hash, contributors[i]);
    switch (*op_) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        out = {out.re + x.re, out.im + x.im};
        break;
      case ReduceOp::kMin:
        out.re = std::min(out.re, x.re);
        break;
      case ReduceOp::kMax:
        out.re = std::max(out.re, x.re);
        break;
      case ReduceOp::kProd:
        out = {out.re * x.re - out.im * x.im, out.re * x.im + out.im * x.re};
        break;
    }
  }
  if (*op_ == ReduceOp::kAvg) {
    const auto count = static_cast<int64_t>(contributors.size());
    out = {out.re / count, out.im / count};
  }
  return out;
}

void LogicalContent::Encode(Number value, char* element) const {
  const int64_t re = value.re;
  switch (dtype_) {
    case DType::kBool:
      return Put(element, static_cast<uint8_t>(re != 0));
    case DType::kI8:
    case DType::kU8:
      return Put(element, static_cast<uint8_t>(re));
    case DType::kI16:
    case DType::kU16:
      return Put(element, static_cast<uint16_t>(re));
    case DType::kI32:
    case DType::kU32:
      return Put(element, static_cast<uint32_t>(re));
    case DType::kI64:
    case DType::kU64:
      return Put(element, re);
    case DType::kF16:
      return Put(element, host::FloatToHalf(static_cast<float>(re)));
    case DType::kBF16:
      return Put(element, host::FloatToBFloat16(static_cast<float>(re)));
    case DType::kF32:
      return Put(element, static_cast<float>(re));
    case DType::kF64:
      return Put(element, static_cast<double>(re));
    case DType::kC64:
      Put(element, static_cast<float>(re));
      return Put(element + sizeof(float), static_cast<float>(value.im));
    case DType::kC128:
      Put(element, static_cast<double>(re));
      return Put(element + sizeof(double), static_cast<double>(value.im));
    case DType::kF8E4M3FN:
      return Put(element, Float8Of(re, 3, 7));
    case DType::kF8E5M2:
      return Put(element, Float8Of(re, 2, 15));
    case DType::kF8E4M3FNUZ:
      return Put(element, Float8Of(re, 3, 8));
    case DType::kF8E5M2FNUZ:
      return Put(element, Float8Of(re, 2, 16));
    case DType::kC32:
      Put(element, host::FloatToHalf(static_cast<float>(re)));
      return Put(element + sizeof(uint16_t), host::FloatToHalf(static_cast<float>(value.im)));
    case DType::kF8E8M0:
    case DType::kF4E2M1x2:
      return Put(element, static_cast<uint8_t>(re));
  }
}

template <typename Visit>
void LogicalContent::ForEachElement(const Layout& layout, int64_t position, Visit visit) const {
  char element[16] = {};
  if (op_) {
    const std::vector<Contributor> contributors = ContributorsTo(layout, position);
    ForEachStretch(layout, position, [&](int64_t local, int64_t global, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        Encode(Reduced(global + i, contributors), element);
        visit(element, local + i, global + i);
      }
    });
    return;
  }
  ForEachStretch(layout, position, [&](int64_t local, int64_t global, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      const auto index = static_cast<uint64_t>(global + i);
      const uint64_t words[2] = {Hash(index, salt_), Hash(index, salt_ + 1000)};
      std::memcpy(element, words, sizeof(words));
      visit(element, local + i, global + i);
    }
  });
}

void LogicalContent::Fill(const Layout& layout, int64_t position, void* fragment) const {
  char* data = static_cast<char*>(fragment);
  const int64_t size = SizeOf(dtype_);
  ForEachElement(layout, position, [&](const char* element, int64_t local, int64_t) {
    std::memcpy(data + local * size, element, static_cast<size_t>(size));
  });
}

int64_t LogicalContent::CountMismatches(const Layout& layout, int64_t position, const void* fragment,
                                        int64_t* first) const {
  const char* data = static_cast<const char*>(fragment);
  const int64_t size = SizeOf(dtype_);
  int64_t mismatches = 0;
  ForEachElement(layout, position, [&](const char* element, int64_t local, int64_t global) {
    if (std::memcmp(data + local * size, element, static_cast<size_t>(size)) == 0) return;
    if (mismatches++ == 0) *first = global;
  });
  return mismatches;
}

}  // namespace reshard::self_test
