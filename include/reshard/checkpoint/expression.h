// How one tensor is made from others. Every element of the result is either a constant, or one element of one tensor,
// possibly cast, or multiplied by the scale that is stored for it or by a number. So the result of an expression can be
// read box by box.
//
//   {"concatenate": ["q", {"slice": "kv", "end": 128}], "dim": 0}
#ifndef RESHARD_CHECKPOINT_EXPRESSION_H_
#define RESHARD_CHECKPOINT_EXPRESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reshard/layout/dtype.h"

namespace reshard {

// A tensor of the checkpoint, or an operation on others. Dimensions count from 0, or from -1 for the last one. Members
// that an operation does not use keep their defaults.
struct Expression {
  // Each with the members that it uses besides `inputs`, which has one element unless stated otherwise. A member called
  // "dim" in JSON is `dim`, and so on.
  enum class Op {
    kTensor,        // a tensor of that `name`; no inputs
    kConcatenate,   // any number of inputs along `dim`; `sizes`, if any, are those of the inputs, and are checked
    kSplit,         // cut along `dim` into parts of `sizes`: the `part`-th
    kChunk,         // cut along `dim` into `count` ("chunks") equal parts: the `part`-th
    kStack,         // any number of inputs of one shape along a new dimension `dim`
    kUnstack,       // the `part`-th index of `dim`, without that dimension
    kTranspose,     // `numbers` ("dims"): the two dimensions to swap
    kPermute,       // `numbers` ("dims"): which dimension of the input is the first one, the second one, ...
    kReshape,       // `numbers` ("shape"): the same elements in row-major order; one size may be -1. `sizes` ("from"),
                    // if any, is the shape before, and is checked, as is every other "from"
    kFlatten,       // `numbers` ("dims"): the first and the last of the dimensions that become one; `sizes` ("from")
    kUnflatten,     // `dim` becomes dimensions of `sizes`; one may be -1
    kInterleave,    // any number of inputs, each cut along `dim` into `count` ("blocks") equal blocks: the first
                    // block of each input, then the second one of each, ...
    kDeinterleave,  // the inverse: cut along `dim` into `count` ("blocks") equal blocks, and each block into parts of
                    // `sizes`: the `part`-th part of each block
    kPermuteForRope,  // the first dimension as [`count` ("heads"), half, 2], with the last two swapped: from pairs of a
                      // rotation side by side to halves
    kSlice,           // [`begin`, `end`) of `dim`; both count from the end if negative
    kPad,             // `value` after the input along `dim`, up to `end` ("to") in total; `sizes` ("from"), if any, has
                      // one element: how long the input is
    kCast,            // to `dtype`, from `from`: as PyTorch's Tensor.to, rounded to nearest even where that applies
    kDequantize,      // two inputs, quantized values and their scales ("scales"): each value times the scale of its
                      // block, in f32, then cast to `dtype`. `numbers` ("block") are the sizes of a block in the last
                      // dimensions, -1 for a whole dimension; in those before, each index has its own scales. Blocks at
                      // the end of a dimension may be shorter. Scales may leave out dimensions of one block.
    kMultiply,        // by `value` ("by"): values of f32, f16 or bf16, in f32, then cast back
  };
  // Which of several parts is taken: a number, or the value of a placeholder of the rule's target.
  struct Part {
    int64_t number = 0;
    std::string placeholder = {};
    bool operator==(const Part&) const = default;
  };

  Op op = Op::kTensor;
  std::string name = {};  // kTensor: may have placeholders, see Recipe
  std::vector<Expression> inputs = {};
  // kConcatenate, kStack and kInterleave of one input: it stands for one input per value of this placeholder.
  std::string over = {};
  int64_t dim = 0;
  std::vector<int64_t> numbers = {};
  // In elements; or, with `in_ratio` ("ratio" in JSON), in proportion to each other.
  std::vector<int64_t> sizes = {};
  bool in_ratio = false;
  int64_t count = 0;
  Part part = {};
  int64_t begin = 0;
  std::optional<int64_t> end = {};
  double value = 0;
  DType dtype = DType::kF32;
  std::optional<DType> from = {};

  bool operator==(const Expression&) const = default;
};

// "concatenate(q, k, dim=0)", for display. Long ones are shortened.
std::string ToString(const Expression& expression);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_EXPRESSION_H_
