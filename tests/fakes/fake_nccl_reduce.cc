#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "runtime/host/half.h"
#include "tests/fakes/fake_nccl_state.h"

namespace reshard::testing::fake {
namespace {

// How elements are stored, and what they are combined in.
template <typename Stored, typename Wide, Wide (*Load)(Stored), Stored (*Store)(Wide)>
struct Element {
  using S = Stored;
  using W = Wide;
  static W From(S value) { return Load(value); }
  static S To(W value) { return Store(value); }
};
template <typename T>
T Same(T value) {
  return value;
}
template <typename T>
using Plain = Element<T, T, Same<T>, Same<T>>;

template <typename W>
W Combine(NcclRedOp op, W a, W b) {
  if (op == kNcclMax) return a < b ? b : a;
  if (op == kNcclMin) return b < a ? b : a;
  if constexpr (std::is_integral_v<W>) {
    // Sums and products wrap around.
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    return static_cast<W>(op == kNcclProd ? x * y : x + y);
  } else {
    return op == kNcclProd ? a * b : a + b;
  }
}

template <typename E>
void ReduceAs(const std::vector<std::vector<unsigned char>>& inputs, size_t offset, const Terms& terms, void* out) {
  using S = typename E::S;
  using W = typename E::W;
  for (size_t i = 0; i < terms.count; ++i) {
    W value{};
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      S stored;
      std::memcpy(&stored, inputs[rank].data() + offset + i * sizeof(S), sizeof(S));
      value = rank == 0 ? E::From(stored) : Combine<W>(terms.op, value, E::From(stored));
    }
    if (terms.op == kNcclAvg) value = static_cast<W>(value / static_cast<W>(inputs.size()));
    const S stored = E::To(value);
    std::memcpy(static_cast<unsigned char*>(out) + i * sizeof(S), &stored, sizeof(S));
  }
}

}  // namespace

size_t BytesOf(NcclDataType type) {
  switch (type) {
    case kNcclInt8:
    case kNcclUint8:
      return 1;
    case kNcclFloat16:
    case kNcclBfloat16:
      return 2;
    case kNcclInt32:
    case kNcclUint32:
    case kNcclFloat32:
      return 4;
    case kNcclInt64:
    case kNcclUint64:
    case kNcclFloat64:
      return 8;
    default:
      return 0;
  }
}

void Reduce(const std::vector<std::vector<unsigned char>>& inputs, size_t offset, const Terms& terms, void* out) {
  switch (terms.type) {
    case kNcclInt8:
      return ReduceAs<Plain<int8_t>>(inputs, offset, terms, out);
    case kNcclUint8:
      return ReduceAs<Plain<uint8_t>>(inputs, offset, terms, out);
    case kNcclInt32:
      return ReduceAs<Plain<int32_t>>(inputs, offset, terms, out);
    case kNcclUint32:
      return ReduceAs<Plain<uint32_t>>(inputs, offset, terms, out);
    case kNcclInt64:
      return ReduceAs<Plain<int64_t>>(inputs, offset, terms, out);
    case kNcclUint64:
      return ReduceAs<Plain<uint64_t>>(inputs, offset, terms, out);
    case kNcclFloat32:
      return ReduceAs<Plain<float>>(inputs, offset, terms, out);
    case kNcclFloat64:
      return ReduceAs<Plain<double>>(inputs, offset, terms, out);
    case kNcclFloat16:
      return ReduceAs<Element<uint16_t, float, host::HalfToFloat, host::FloatToHalf>>(inputs, offset, terms, out);
    default:
      return ReduceAs<Element<uint16_t, float, host::BFloat16ToFloat, host::FloatToBFloat16>>(inputs, offset, terms,
                                                                                              out);
  }
}

}  // namespace reshard::testing::fake
