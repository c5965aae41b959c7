#include "page/page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "page/assets.h"

namespace reshard::page {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// JSON in which nothing ends a script element or begins a comment.
std::string ScriptText(std::string_view json) {
  return absl::StrReplaceAll(View(json), {{"<", "\\u003c"}, {"\u2028", "\\u2028"}, {"\u2029", "\\u2029"}});
}

std::string MarkupText(std::string_view text) {
  return absl::StrReplaceAll(View(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

}  // namespace

std::string Document(std::string_view title, std::string_view data) {
  std::string_view html, css;
  std::string scripts;
  for (const Asset& asset : Assets()) {
    if (asset.name == "page.html") {
      html = asset.text;
    } else if (asset.name == "page.css") {
      css = asset.text;
    } else {
      absl::StrAppend(&scripts, View(asset.text), "\n");
    }
  }
  // In one pass, so that inserted text is not searched.
  return absl::StrReplaceAll(View(html), {{"@TITLE@", MarkupText(title)},
                                          {"@STYLE@", std::string(css)},
                                          {"@DATA@", ScriptText(data)},
                                          {"@SCRIPT@", scripts}});
}

}  // namespace reshard::page
