#include "planner/report/svg.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "status/view.h"

namespace reshard::report {
namespace {

constexpr const char* kMono = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace";
constexpr std::string_view kTextColor = "#222222";
constexpr const char* kSans = "DejaVu Sans, Helvetica, Arial, sans-serif";

int LineHeight(const SvgFont& font) { return font.size * 3 / 2 + 2; }

}  // namespace

std::string XmlEscape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte >= 0x7f) {
      out += '?';
    } else {
      out += c;
    }
  }
  return out;
}

void Svg::Rect(int x, int y, int width, int height, std::string_view fill, std::string_view stroke,
               double stroke_width) {
  absl::StrAppendFormat(&body_, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"", x, y, width, height,
                        status::View(fill));
  if (stroke != "none")
    absl::StrAppendFormat(&body_, " stroke=\"%s\" stroke-width=\"%g\"", status::View(stroke), stroke_width);
  absl::StrAppend(&body_, "/>\n");
}

void Svg::DashedRect(int x, int y, int width, int height) {
  absl::StrAppendFormat(&body_,
                        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#666666\" "
                        "stroke-dasharray=\"5 4\"/>\n",
                        x, y, width, height);
}

void Svg::Arrow(int x1, int x2, int y, bool dashed) {
  absl::StrAppendFormat(&body_,
                        "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#222222\" stroke-width=\"2\"%s/>\n", x1,
                        y, x2 - 9, y, dashed ? " stroke-dasharray=\"6 4\"" : "");
  absl::StrAppendFormat(&body_, "<path d=\"M%d %d l-11 -6 v12 z\" fill=\"#222222\"/>\n", x2, y);
}

void Svg::TextAt(std::string_view where, std::string_view text, const SvgFont& font) {
  absl::StrAppendFormat(&body_, "<text %s font-size=\"%d\"", status::View(where), font.size);
  if (!font.mono) absl::StrAppendFormat(&body_, " font-family=\"%s\"", kSans);
  if (font.fill != kTextColor) absl::StrAppendFormat(&body_, " fill=\"%s\"", status::View(font.fill));
  if (font.bold) absl::StrAppend(&body_, " font-weight=\"bold\"");
  if (font.anchor != "start") absl::StrAppendFormat(&body_, " text-anchor=\"%s\"", status::View(font.anchor));
  absl::StrAppend(&body_, ">", XmlEscape(text), "</text>\n");
}

void Svg::Text(int x, int y, std::string_view text, const SvgFont& font) {
  TextAt(absl::StrFormat("x=\"%d\" y=\"%d\"", x, y + font.size * 36 / 100), text, font);
}

void Svg::TextUpwards(int x, int y, std::string_view text, const SvgFont& font) {
  TextAt(absl::StrFormat("transform=\"translate(%d %d) rotate(-90)\"", x + font.size * 36 / 100, y), text, font);
}

void Svg::BeginGroup(std::string_view tooltip, bool faint) {
  absl::StrAppend(&body_, faint ? "<g opacity=\"0.35\">" : "<g>", "<title>", XmlEscape(tooltip), "</title>\n");
}

void Svg::EndGroup() { absl::StrAppend(&body_, "</g>\n"); }

std::string Svg::Finish(int width, int height, std::string_view title) const {
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
      "font-family=\"%s\" fill=\"%s\">\n"
      "<title>%s</title>\n"
      "<defs><pattern id=\"partial\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\" stroke=\"#000000\" "
      "stroke-opacity=\"0.22\" stroke-width=\"2\"/></pattern></defs>\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n%s</svg>\n",
      width, height, width, height, kMono, status::View(kTextColor), XmlEscape(title), width, height, body_);
}

void SvgLines::Add(std::string text, const SvgFont& font) {
  if (!text.empty()) lines_.emplace_back(std::move(text), font);
}

int SvgLines::width() const {
  int width = 0;
  for (const auto& [text, font] : lines_) width = std::max(width, font.Width(text.size()));
  return width;
}

int SvgLines::height() const {
  int height = 0;
  for (const auto& [text, font] : lines_) height += LineHeight(font);
  return height;
}

void SvgLines::Draw(Svg& svg, int x, int y) const {
  for (const auto& [text, font] : lines_) {
    svg.Text(x, y + LineHeight(font) / 2, text, font);
    y += LineHeight(font);
  }
}

}  // namespace reshard::report
