// Writes a stand-alone SVG document: shapes and text, no scripts, no external fonts. Lengths are pixels.
#ifndef RESHARD_PLANNER_REPORT_SVG_H_
#define RESHARD_PLANNER_REPORT_SVG_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reshard::report {

// `text` as it may stand in XML content and attributes. Bytes that XML does not allow become '?'.
std::string XmlEscape(std::string_view text);

struct SvgFont {
  int size = 12;
  bool bold = false;
  bool mono = true;
  std::string_view anchor = "start";  // of the text at x: "start", "middle" or "end"
  std::string_view fill = "#222222";

  // Width of `chars` characters, not less than what browsers draw.
  int Width(size_t chars) const { return static_cast<int>((static_cast<long>(chars) * size * 61 + 99) / 100); }
};

class Svg {
 public:
  static constexpr std::string_view kPartialFill = "url(#partial)";  // thin diagonal lines over what lies below

  void Rect(int x, int y, int width, int height, std::string_view fill, std::string_view stroke = "none",
            double stroke_width = 1);
  void DashedRect(int x, int y, int width, int height);
  void Arrow(int x1, int x2, int y, bool dashed);
  // `y` is the middle of the text's height.
  void Text(int x, int y, std::string_view text, const SvgFont& font);
  // Runs upwards; `x` is the middle of its height.
  void TextUpwards(int x, int y, std::string_view text, const SvgFont& font);
  // What is drawn until EndGroup() belongs together: it shows `tooltip`, and is drawn faintly if `faint`.
  void BeginGroup(std::string_view tooltip, bool faint = false);
  void EndGroup();

  std::string Finish(int width, int height, std::string_view title) const;

 private:
  void TextAt(std::string_view where, std::string_view text, const SvgFont& font);

  std::string body_;
};

// Lines of text below each other, and how much room they take.
class SvgLines {
 public:
  // Empty text is not a line.
  void Add(std::string text, const SvgFont& font);
  int width() const;
  int height() const;
  // (x, y) is the upper left corner.
  void Draw(Svg& svg, int x, int y) const;

 private:
  std::vector<std::pair<std::string, SvgFont>> lines_;
};

}  // namespace reshard::report

#endif  // RESHARD_PLANNER_REPORT_SVG_H_
