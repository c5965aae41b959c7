// Recipes out of any bytes: each byte is a choice, so that a fuzzer that changes a few bytes gets another recipe that
// parses, with operations within each other, parts that are counted and what goes over placeholders. Compilers may
// differ in the order of choices, so the corpus has recipes as text.
#ifndef RESHARD_TESTS_FUZZ_RECIPE_PROGRAM_H_
#define RESHARD_TESTS_FUZZ_RECIPE_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reshard::testing {

class RecipeProgram {
 public:
  RecipeProgram(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  std::string Text() {
    std::string rules;
    for (int count = 1 + Choose(2); count > 0; --count) {
      const std::string to = Any("x", "x.{e}", "x.{e}.{l}", "x.{l}.{e}", "{p*}.y", "x.{l}");
      rules += (rules.empty() ? "" : ",") + ("{\"to\":\"" + to + "\",\"from\":" + Expression(0) + "}");
    }
    const std::string keep = Any("*", "nothing");
    return R"({"schema":"reshard.recipe/1","tensors":[)" + rules + R"(],"keep":[")" + keep + "\"]}";
  }

 private:
  // Behind the end every choice is the first.
  int Choose(int count) { return at_ < size_ ? data_[at_++] % count : 0; }
  template <typename... Texts>
  std::string Any(Texts... texts) {
    const std::string_view all[] = {texts...};
    return std::string(all[Choose(static_cast<int>(sizeof...(texts)))]);
  }
  std::string Number() { return Any("0", "1", "2", "-1", "3", "-2", "4", "6", "128", "9223372036854775807"); }
  std::string List() {
    std::string list;
    for (int count = 1 + Choose(3); count > 0; --count) list += (list.empty() ? "" : ",") + Number();
    return "[" + list + "]";
  }
  std::string Name() {
    return Any("\"a.{l}.w\"", "\"a.{e}.w\"", "\"a.0.w\"", "\"b\"", "\"c\"", "\"{p*}\"", "\"q\"", "\"s\"",
               "\"a.{l}.{e}\"");
  }
  std::string Sizes() { return Any(",\"sizes\":", ",\"ratio\":") + List(); }
  std::string Part() { return ",\"part\":" + Any("\"{e}\"", "0", "1", "\"{l}\""); }
  std::string Dim() { return Choose(2) == 0 ? "" : ",\"dim\":" + Number(); }
  // Of several inputs, or of one over a placeholder.
  std::string Inputs(int depth) {
    if (Choose(3) > 0) return Expression(depth) + ",\"over\":" + Any("\"l\"", "\"e\"");
    return "[" + Expression(depth) + "," + Expression(depth) + "]";
  }

  std::string Expression(int depth) {
    constexpr int kDeepest = 5, kKinds = 4;
    if (depth == kDeepest) return Name();
    switch (Choose(kKinds)) {
      case 0:
        return Join(depth + 1);
      case 1:
        return PartOf(depth + 1);
      case 2:
        return Other(depth + 1);
      default:
        return Name();
    }
  }

  // Several as one.
  std::string Join(int depth) {
    switch (Choose(3)) {
      case 0:
        return R"({"stack":)" + Inputs(depth) + Dim() + "}";
      case 1:
        return R"({"concatenate":)" + Inputs(depth) + Dim() + (Choose(2) == 0 ? "" : Sizes()) + "}";
      default:
        return R"({"interleave":)" + Inputs(depth) + Dim() + ",\"blocks\":" + Number() +
               (Choose(2) == 0 ? "" : Sizes()) + "}";
    }
  }

  // One of several parts.
  std::string PartOf(int depth) {
    switch (Choose(4)) {
      case 0:
        return R"({"chunk":)" + Expression(depth) + Dim() + ",\"chunks\":" + Number() + Part() + "}";
      case 1:
        return R"({"split":)" + Expression(depth) + Dim() + Sizes() + Part() + "}";
      case 2:
        return R"({"unstack":)" + Expression(depth) + Dim() + Part() + "}";
      default:
        return R"({"deinterleave":)" + Expression(depth) + Dim() + ",\"blocks\":" + Number() + Sizes() + Part() + "}";
    }
  }

  // One of one.
  std::string Other(int depth) {
    switch (Choose(10)) {
      case 0:
        return R"({"transpose":)" + Expression(depth) + ",\"dims\":[" + Number() + "," + Number() + "]}";
      case 1:
        return R"({"permute":)" + Expression(depth) + ",\"dims\":" + List() + "}";
      case 2:
        return R"({"reshape":)" + Expression(depth) + ",\"shape\":" + List() + ",\"from\":" + List() + "}";
      case 3:
        return R"({"flatten":)" + Expression(depth) + ",\"dims\":" + List() + ",\"from\":" + List() + "}";
      case 4:
        return R"({"unflatten":)" + Expression(depth) + Dim() + ",\"sizes\":" + List() + "}";
      case 5:
        return R"({"slice":)" + Expression(depth) + Dim() + ",\"begin\":" + Number() + ",\"end\":" + Number() + "}";
      case 6:
        return R"({"pad":)" + Expression(depth) + Dim() + ",\"to\":" + Number() +
               ",\"value\":" + Any("0", "-0.0", "1e300", "7") + ",\"from\":" + Any("0", "1", "3", "4", "6") + "}";
      case 7:
        return R"({"cast":)" + Expression(depth) + ",\"dtype\":" + Any("\"f64\"", "\"bf16\"", "\"i8\"", "\"c64\"") +
               ",\"from\":" + Any("\"f32\"", "\"bf16\"") + "}";
      case 8:
        return R"({"multiply":)" + Expression(depth) + ",\"by\":" + Any("0", "-0.5", "1e300", "7") + "}";
      default:
        return R"({"dequantize":)" + Expression(depth) + ",\"scales\":" + Expression(depth) + ",\"block\":" + List() +
               "}";
    }
  }

  const uint8_t* const data_;
  const size_t size_;
  size_t at_ = 0;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_FUZZ_RECIPE_PROGRAM_H_
