// An expression over tensors of a catalog in its few basic operations, with all shapes known.
#ifndef RESHARD_CHECKPOINT_VIEWS_NODE_H_
#define RESHARD_CHECKPOINT_VIEWS_NODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reshard/layout/dtype.h"

namespace reshard::views {

struct Node {
  enum class Kind {
    kTensor,       // the `tensor`-th one of the catalog
    kConstant,     // `element` everywhere
    kConcatenate,  // of one input or more along `dim`; the i-th ends at ends[i]
    kPermute,      // dimension d is dimension dims[d] of the input
    kReshape,      // the elements of the input in row-major order
    kSlice,        // index i of `dim` is index begin + i of the input
    kCast,         // the elements of the input as `dtype`
    kDequantize,   // the elements of the first input, each times the element of the second one at its index divided by
                   // `blocks`, in f32, as `dtype`
  };
  Kind kind = Kind::kTensor;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;  // in elements; their bytes fit 64 bits
  std::vector<Node> inputs;    // all of one dtype, which is this one's, but for kCast and kDequantize
  int64_t tensor = -1;
  std::string element;  // its bytes
  size_t dim = 0;
  std::vector<int64_t> ends;
  std::vector<size_t> dims;
  std::vector<int64_t> blocks;  // one per dimension, at least 1 each
  int64_t begin = 0;
};

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_NODE_H_
