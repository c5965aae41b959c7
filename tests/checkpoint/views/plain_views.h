// What expressions mean, element by element: an oracle that shares no code with the library.
#ifndef RESHARD_TESTS_CHECKPOINT_VIEWS_PLAIN_VIEWS_H_
#define RESHARD_TESTS_CHECKPOINT_VIEWS_PLAIN_VIEWS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "reshard/checkpoint/expression.h"

namespace reshard::testing {

using Shape = std::vector<int64_t>;

// A small tensor: its elements in row-major order.
struct Plain {
  Shape shape;
  std::vector<int64_t> elements;

  static Plain Of(const Shape& shape, const std::function<int64_t(const Shape& index)>& element);
  int64_t at(const Shape& index) const;
};

// The value of an expression without placeholders over tensors of those names. Casts keep elements.
Plain Evaluate(const Expression& expression, const std::map<std::string, Plain>& tensors);

// A random expression over the tensors, of at most that depth, whose value is not empty. Tensors come in threes of one
// shape: "a.0", "a.1", "a.2", "b.0", ...
class RandomExpressions {
 public:
  RandomExpressions(uint64_t seed, const std::map<std::string, Plain>& tensors) : random_(seed), tensors_(tensors) {}
  Expression Next(int depth);

 private:
  int64_t Number(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  // An operation on one input that has that shape.
  Expression Unary(Expression input);
  Expression Join(Expression input);
  Shape ShapeOf(const Expression& e) const { return Evaluate(e, tensors_).shape; }
  Shape Cut(int64_t length);  // sizes of parts

  std::mt19937_64 random_;
  const std::map<std::string, Plain>& tensors_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_VIEWS_PLAIN_VIEWS_H_
