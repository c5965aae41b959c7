// The rules of the algebra, checked one item at a time: Layout::Create and the text parser (which knows the column of
// each item) refuse the same things with the same words.
#ifndef RESHARD_LAYOUT_RULES_H_
#define RESHARD_LAYOUT_RULES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::layout {

class LayoutRules {
 public:
  // More factors than this in one layout are refused; only 42 axis factors and 20 digits a dimension can do anything.
  static constexpr int kMaxFactors = 1024;

  explicit LayoutRules(const Mesh& mesh) : mesh_(mesh) {}

  // Each call adds one item and gives the rule that it breaks, or nothing. After a broken rule the object is spent.
  using Broken = std::optional<std::string>;
  // A dimension: BeginDim or, around the dimensions that are flattened into it, BeginFlattened and EndFlattened; then
  // its factors; then EndDim.
  Broken BeginDim(int64_t size);
  Broken BeginFlattened();
  Broken EndFlattened();
  void EndDim();
  // Elements of the current dimension.
  int64_t size() const { return size_; }
  // Adds a factor to the current dimension. Brings it to normal form: members that its kind does not use are reset.
  Broken AddFactor(Factor& factor);
  Broken AddPartial(const AxisRef& ref);

  // Product of the sizes so far.
  int64_t num_elements() const { return has_zero_ ? 0 : nonzero_product_; }

 private:
  Broken UseAxis(const AxisRef& ref, bool must_be_whole);
  Broken CheckSlots(const Factor& factor);

  // The dimensions so far that are flattened into one.
  struct Flattened {
    int64_t size = 1;
    std::optional<int64_t> length = 1;  // of every device's fragment; nothing where they differ
    int64_t runs = 1;                   // at most, of one device
    bool cut = false;
    int dims = 0;
  };

  const Mesh& mesh_;
  std::vector<Flattened> flattened_;  // the outermost first
  std::vector<AxisRef> used_;
  int rank_ = 0;
  int factors_ = 0;
  // Zero sizes are left out of the product that must fit an int64, so that no product of other sizes can overflow
  // later.
  int64_t nonzero_product_ = 1;
  bool has_zero_ = false;
  bool has_slots_ = false;  // a slot table, in any dimension
  // Of the current dimension:
  int64_t size_ = 0;
  int dim_factors_ = 0;
  bool dim_has_slots_ = false;
  bool dim_cut_ = false;        // an axis cuts it, or a dimension that is flattened into it
  bool is_flattened_ = false;   // others are flattened into it
  bool uneven_inside_ = false;  // devices' fragments of these differ in length
  int64_t runs_inside_ = 1;     // at most, of one device's fragment of these
  int64_t intervals_ = 1;
  // The common length of all intervals over all devices, or nothing once they differ. Ceil cuts and explicit sizes can
  // never make different lengths equal again (the longest cut evenly would have to be as long as a shorter one).
  std::optional<int64_t> common_length_;
};

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_RULES_H_
