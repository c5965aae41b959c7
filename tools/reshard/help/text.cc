#include "tools/reshard/help/text.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/reshard/help/topics.h"
#include "tools/reshard/terminal.h"

namespace reshard::help {
namespace {

// Columns to the left of meanings; an entry that is wider has its meaning below.
constexpr size_t kIndent = 2, kWidestLeft = 26;

class Page {
 public:
  Page(size_t width, bool styled) : width_(std::max<size_t>(width, 40)), styled_(styled) {}

  void Heading(std::string_view title) { absl::StrAppend(&text_, "\n", Bold(title), "\n"); }
  void Line(std::string_view line) { absl::StrAppend(&text_, std::string(line), "\n"); }
  void Paragraph(std::string_view paragraph, size_t indent = 0) {
    for (const std::string& line : Wrapped(paragraph, width_ - indent)) Line(std::string(indent, ' ') + line);
  }
  // `left`, and `meaning` beside it from the column `at` on.
  void Entry(const std::string& left, std::string_view meaning, size_t at) {
    std::string line = std::string(kIndent, ' ') + left;
    if (line.size() + 2 > at) {
      Line(line);
      line.clear();
    }
    for (const std::string& words : Wrapped(meaning, width_ - at)) {
      line.resize(at, ' ');
      Line(line += words);
      line.clear();
    }
  }

  std::string Bold(std::string_view words) const {
    return styled_ ? absl::StrCat("\x1b[1m", std::string(words), "\x1b[0m") : std::string(words);
  }
  std::string Take() { return std::move(text_); }

 private:
  const size_t width_;
  const bool styled_;
  std::string text_;
};

// The column where meanings begin, the same for the whole page.
size_t ColumnFor(const std::vector<std::string>& lefts) {
  size_t widest = 0;
  for (const std::string& left : lefts) {
    if (left.size() <= kWidestLeft) widest = std::max(widest, left.size());
  }
  return kIndent + widest + 2;
}

std::string MeaningOf(const Flag& flag) {
  std::string meaning = flag.meaning;
  if (!flag.initially.empty()) absl::StrAppend(&meaning, " (default ", flag.initially, ")");
  if (flag.repeats) meaning += "; repeatable";
  return meaning;
}

std::string ListedName(const Outline& outline) {
  return outline.aliases.empty() ? outline.name
                                 : absl::StrCat(outline.name, ", ", absl::StrJoin(outline.aliases, ", "));
}

}  // namespace

std::vector<std::string> Wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (const absl::string_view word : absl::StrSplit(absl::string_view(text.data(), text.size()), ' ')) {
    if (!lines.empty() && lines.back().size() + 1 + word.size() <= width) {
      absl::StrAppend(&lines.back(), " ", word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

std::string UsageOf(const Outline& outline) {
  std::string usage = outline.name == "reshard" ? "reshard" : absl::StrCat("reshard ", outline.name);
  absl::StrAppend(&usage, " [flags]");
  for (const Flag& argument : outline.arguments) {
    absl::StrAppend(&usage, " ", argument.required ? argument.names[0] : absl::StrCat("[", argument.names[0], "]"));
  }
  return usage;
}

std::string Written(const Flag& flag) {
  return absl::StrCat(absl::StrJoin(flag.names, ", "), flag.value.empty() ? "" : " ", flag.value);
}

std::string HelpText(const Outline& outline, size_t width, bool styled) {
  Page page(width, styled);
  page.Paragraph(absl::StrCat(outline.meaning, "."));
  page.Heading("Usage");
  page.Paragraph(UsageOf(outline), kIndent);
  if (!outline.aliases.empty()) page.Paragraph("also: reshard " + absl::StrJoin(outline.aliases, ", "), kIndent);
  std::vector<std::string> lefts;
  for (const Flag& argument : outline.arguments) lefts.push_back(argument.names[0]);
  for (const FlagGroup& group : outline.flags) {
    for (const Flag& flag : group.flags) lefts.push_back(Written(flag));
  }
  const size_t column = ColumnFor(lefts);
  if (!outline.arguments.empty()) page.Heading("Arguments");
  for (const Flag& argument : outline.arguments) page.Entry(argument.names[0], MeaningOf(argument), column);
  for (const FlagGroup& group : outline.flags) {
    page.Heading(group.title);
    for (const Flag& flag : group.flags) page.Entry(Written(flag), MeaningOf(flag), column);
  }
  if (!outline.examples.empty()) page.Heading("Examples");
  for (const Example& example : outline.examples) {
    if (!example.purpose.empty()) page.Line("  # " + example.purpose);
    page.Line("  " + example.command);  // whole, to be copied
  }
  page.Line("");
  page.Paragraph("Exit codes: reshard help exit-codes. Topics: reshard help.");
  return page.Take();
}

std::string OverviewText(const Outline& outline, const std::vector<Outline>& subcommands, size_t width, bool styled) {
  Page page(width, styled);
  page.Paragraph(absl::StrCat(outline.meaning, "."));
  page.Heading("Usage");
  page.Paragraph("reshard SUBCOMMAND ...", kIndent);
  std::vector<std::string> lefts, sections;
  for (const Outline& subcommand : subcommands) {
    lefts.push_back(ListedName(subcommand));
    if (std::find(sections.begin(), sections.end(), subcommand.section) == sections.end()) {
      sections.push_back(subcommand.section);
    }
  }
  for (const FlagGroup& group : outline.flags) {
    for (const Flag& flag : group.flags) lefts.push_back(Written(flag));
  }
  const size_t column = ColumnFor(lefts);
  for (const std::string& section : sections) {
    page.Heading(section);
    for (const Outline& subcommand : subcommands) {
      if (subcommand.section == section) page.Entry(ListedName(subcommand), subcommand.meaning, column);
    }
  }
  for (const FlagGroup& group : outline.flags) {
    page.Heading(group.title);
    for (const Flag& flag : group.flags) page.Entry(Written(flag), flag.meaning, column);
  }
  page.Heading("Topics");
  std::vector<std::string> names;
  for (const Topic& topic : Topics()) names.emplace_back(topic.name);
  page.Paragraph(absl::StrJoin(names, ", "), kIndent);
  if (!outline.examples.empty()) page.Heading("Examples");
  for (const Example& example : outline.examples) page.Line("  " + example.command);
  page.Line("");
  page.Paragraph("reshard help SUBCOMMAND or TOPIC says more.");
  return page.Take();
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/, CLI::AppFormatMode /*mode*/) const {
  const size_t width = tool::TerminalWidth(STDOUT_FILENO);
  const bool styled = tool::IsStyled(STDOUT_FILENO);
  if (app->get_parent() == nullptr) return OverviewText(OutlineOf(*app), OutlinesOfSubcommands(*app), width, styled);
  return HelpText(OutlineOf(*app), width, styled);
}

}  // namespace reshard::help
