// The search space of sequences: layouts as partial maps from mesh digits to places.
//
// Along a dimension of n elements, the boundaries of both layouts' factors form a chain 1 | b1 | ... | n in which each
// number divides the next; a place is the part between two neighbors. A digit of size s may be at a place of size s:
// the device's coordinate along the digit then chooses the part there. Beyond what source and target use, the rest of
// the dimensions provides one more place for each digit, as far as it fits (all such places cost the same), so that
// strided intermediates such as [<2,X>8] are part of the space. A digit is at a place, replicated, or partial.
#ifndef RESHARD_PLANNER_DIGITS_DIGIT_MODEL_H_
#define RESHARD_PLANNER_DIGITS_DIGIT_MODEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/digits/digits.h"
#include "reshard/layout/layout.h"

namespace reshard::digits {

inline constexpr int kMaxDigits = 16;
inline constexpr int kMaxSearchDigits = 8;  // of a model that is searched
inline constexpr int8_t kReplicated = -1;
inline constexpr int8_t kPartialDigit = -2;

// Where each digit is: a place, kReplicated or kPartialDigit. Unused entries stay kReplicated.
struct State {
  State() { at.fill(kReplicated); }
  std::array<int8_t, kMaxDigits> at;
  bool operator==(const State&) const = default;
  // Different for different states of a model that is searched.
  uint64_t Key() const {
    uint64_t key = 0;
    for (size_t e = 0; e < kMaxSearchDigits; ++e) key = key << 8 | static_cast<uint8_t>(at[e]);
    return key;
  }
};

class DigitModel {
 public:
  struct DigitPlace {
    int dim = 0;
    int64_t lo = 1;
    int64_t size = 1;
    bool fixed = false;  // taken permanently, by a digit that is left out of the model
    bool tail = false;   // beyond what source and target use
  };

  // nullopt if the pair does not fit the model: different meshes, uneven cuts, reflected axes or explicit sizes, no
  // common chain of boundaries, or too many digits that move. `boxes`: intermediates must be
  // contiguous, so that places beyond those of the two layouts are shared and in order, instead of one per digit.
  // `levels`: axes are cut where they leave domains. `keep_still`: digits with the same place in both layouts may move
  // too, as far as there is room for them.
  static std::optional<DigitModel> Create(const Layout& source, const Layout& target, bool boxes,
                                          const MeshLevels* levels = nullptr, bool keep_still = false) {
    return Create(source, target, boxes, levels, keep_still, {}, kMaxSearchDigits);
  }
  // A model of up to kMaxDigits digits that is not to be searched. Axes are also cut at both ends of every reference in
  // `cuts`.
  static std::optional<DigitModel> WithCuts(const Layout& source, const Layout& target, const MeshLevels* levels,
                                            const std::vector<AxisRef>& cuts) {
    return Create(source, target, false, levels, false, cuts, kMaxDigits);
  }

  int num_digits() const { return static_cast<int>(sizes_.size()); }
  // Number of digits whose place in the target differs from that in the source.
  int num_moving() const { return num_moving_; }
  // Whether no replicated digit had to be left out. Digits with the same place in both layouts are always left out,
  // except with `boxes`.
  bool complete() const { return complete_; }
  // Whether every digit has a level. Without levels it is not known where devices that differ in a digit meet.
  bool has_levels() const { return has_levels_; }
  int64_t digit_size(int e) const { return sizes_[e]; }
  const std::vector<DigitPlace>& places() const { return places_; }
  bool Fits(int digit, int place) const {
    const DigitPlace& p = places_[place];
    return p.size == digit_size(digit) && !p.fixed;
  }
  const State& source() const { return source_; }
  const State& target() const { return target_; }
  int64_t devices() const { return devices_; }
  int64_t elements() const { return elements_; }  // for one set of coordinates on the digits left out of the model
  const std::vector<Digit>& refined() const { return refined_; }

  // Number of elements of one device's fragment.
  int64_t LocalElements(const State& state) const;
  // Whether, in every dimension, no empty place comes before an occupied one.
  bool IsBox(const State& state) const;
  // The same model without those places beyond source and target that none of these states uses, so that the layouts of
  // a path have no needless block factors in front of an axis ([<X>8] rather than [<2,X>8]).
  DigitModel Compacted(const std::vector<State>& states) const;
  // The layout that a state denotes. Source and target keep the form in which they were given.
  Layout ToLayout(const State& state) const;

 private:
  DigitModel() = default;
  static std::optional<DigitModel> Create(const Layout& source, const Layout& target, bool boxes,
                                          const MeshLevels* levels, bool keep_still, const std::vector<AxisRef>& cuts,
                                          int most_digits);
  Layout source_layout_, target_layout_;
  std::vector<Digit> refined_;  // the digits that may move
  std::vector<Digit> all_digits_;
  std::vector<int64_t> sizes_;
  int num_moving_ = 0;
  bool complete_ = true;
  bool has_levels_ = false;
  std::vector<int> model_digit_;  // per refined digit of the mesh: index in the model, or -1
  std::vector<int> fixed_place_;  // per refined digit left out: its place in both layouts, or -1
  std::vector<bool> fixed_partial_;
  std::vector<DigitPlace> places_;
  State source_, target_;
  int64_t devices_ = 1;
  int64_t elements_ = 1;
};

}  // namespace reshard::digits

#endif  // RESHARD_PLANNER_DIGITS_DIGIT_MODEL_H_
