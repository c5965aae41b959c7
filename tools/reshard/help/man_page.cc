#include "tools/reshard/help/man_page.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "reshard/planner/version.h"
#include "tools/reshard/help/text.h"

namespace reshard::help {
namespace {

// One line as it is: nothing in it is a macro or an escape.
std::string Escaped(std::string_view line) {
  std::string out = absl::StrReplaceAll(
      absl::string_view(line.data(), line.size()),
      {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"`", "\\(ga"}, {"^", "\\(ha"}, {"~", "\\(ti"}});
  return !out.empty() && out[0] == '.' ? "\\&" + out : out;
}

std::string Verbatim(std::string_view text) {
  std::string out = ".nf\n";
  for (const absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    absl::StrAppend(&out, Escaped({line.data(), line.size()}), "\n");
  }
  return out + ".fi\n";
}

std::string Head(const std::string& page, int section, std::string_view meaning) {
  // Ragged right: a list of values is too long a word to justify.
  return absl::StrCat(".TH ", absl::AsciiStrToUpper(Escaped(page)), " ", section, " \"\" \"reshard ", Version(),
                      "\" \"reshard\"\n.ad l\n.SH NAME\n", Escaped(page), " \\- ", Escaped(meaning), "\n");
}

std::string FlagText(const Flag& flag) {
  std::string names;
  for (const std::string& name : flag.names)
    absl::StrAppend(&names, names.empty() ? "" : ", ", "\\fB", Escaped(name), "\\fR");
  std::string out = absl::StrCat(".TP\n", names);
  if (!flag.value.empty() && flag.value != flag.names[0]) absl::StrAppend(&out, " \\fI", Escaped(flag.value), "\\fR");
  absl::StrAppend(&out, "\n", Escaped(flag.meaning), flag.repeats ? "; repeatable" : "",
                  flag.initially.empty() ? "" : absl::StrCat(" (default ", Escaped(flag.initially), ")"), "\n");
  return out;
}

std::string Flags(const Outline& outline) {
  std::string out;
  if (!outline.arguments.empty()) {
    out += ".SH ARGUMENTS\n";
    for (Flag argument : outline.arguments) {
      argument.value.clear();
      out += FlagText(argument);
    }
  }
  out += ".SH OPTIONS\n";
  for (const FlagGroup& group : outline.flags) {
    absl::StrAppend(&out, ".SS ", Escaped(group.title), "\n");
    for (const Flag& flag : group.flags) out += FlagText(flag);
  }
  return out;
}

std::string Examples(const Outline& outline) {
  if (outline.examples.empty()) return "";
  std::string out = ".SH EXAMPLES\n";
  for (const Example& example : outline.examples) {
    if (!example.purpose.empty()) absl::StrAppend(&out, ".PP\n", Escaped(example.purpose), ":\n");
    absl::StrAppend(&out, ".PP\n.RS 4\n", Verbatim(example.command), ".RE\n");
  }
  return out;
}

std::string SeeAlso(const std::vector<std::string>& pages) {
  return absl::StrCat(".SH SEE ALSO\n", absl::StrJoin(pages, ",\n"), "\n");
}

std::string Reference(const std::string& page, int section) {
  return absl::StrCat("\\fB", Escaped(page), "\\fR(", section, ")");
}

std::string PageOf(const Topic& topic) { return absl::StrCat("reshard-", std::string(topic.name)); }

}  // namespace

std::vector<ManPage> ManPages(const Outline& outline, const std::vector<Outline>& subcommands,
                              const std::vector<Topic>& topics) {
  std::vector<std::string> all;
  for (const Outline& subcommand : subcommands) all.push_back(Reference("reshard-" + subcommand.name, 1));
  for (const Topic& topic : topics) all.push_back(Reference(PageOf(topic), 7));

  std::string first =
      Head("reshard", 1, outline.meaning) + ".SH SYNOPSIS\n\\fBreshard\\fR \\fIsubcommand\\fR ...\n.SH SUBCOMMANDS\n";
  for (const Outline& subcommand : subcommands) {
    absl::StrAppend(&first, ".TP\n", Reference("reshard-" + subcommand.name, 1), "\n", Escaped(subcommand.meaning),
                    "\n");
  }
  std::vector<ManPage> pages = {{"reshard.1", first + Flags(outline) + Examples(outline) + SeeAlso(all)}};
  for (const Outline& subcommand : subcommands) {
    const std::string name = "reshard-" + subcommand.name;
    pages.push_back(
        {name + ".1", absl::StrCat(Head(name, 1, subcommand.meaning), ".SH SYNOPSIS\n", Escaped(UsageOf(subcommand)),
                                   "\n", Flags(subcommand), Examples(subcommand), ".SH EXIT STATUS\nSee ",
                                   Reference("reshard-exit-codes", 7), ".\n", SeeAlso({Reference("reshard", 1)}))});
  }
  for (const Topic& topic : topics) {
    pages.push_back({PageOf(topic) + ".7", absl::StrCat(Head(PageOf(topic), 7, topic.meaning), ".SH DESCRIPTION\n",
                                                        Verbatim(topic.text), SeeAlso({Reference("reshard", 1)}))});
  }
  return pages;
}

}  // namespace reshard::help
