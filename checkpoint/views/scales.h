// Scales that lie beside quantized tensors, as checkpoints name them.
#ifndef RESHARD_CHECKPOINT_VIEWS_SCALES_H_
#define RESHARD_CHECKPOINT_VIEWS_SCALES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/views/apply.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/recipe.h"

namespace reshard::views {

// Whether it names scales of a quantized tensor of the catalog, one of 8-bit or 4-bit elements: X_scale_inv or
// X_scale of X, input_scale beside weight.
bool NamesScales(const Catalog& catalog, std::string_view name);

// Quantized tensors of `stored` that have scales beside them, and whose values are nevertheless not scaled.
struct Unscaled {
  std::vector<int64_t> cast;  // become wide floats, by a cast of the recipe
  std::vector<int64_t> kept;  // stay as they are, although a dtype is asked for that name
};

// `views` are what the recipe makes of `stored`, and `result` is the catalog of that. In ascending order.
Unscaled FindUnscaled(const std::vector<View>& views, const Catalog& result, const Catalog& stored,
                      const Recipe& recipe);

}  // namespace reshard::views

#endif  // RESHARD_CHECKPOINT_VIEWS_SCALES_H_
