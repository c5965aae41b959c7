#include "tools/reshard/help/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace reshard::help {
namespace {

std::vector<std::string> NamesOf(const Outline& outline) {
  std::vector<std::string> names = {outline.name};
  names.insert(names.end(), outline.aliases.begin(), outline.aliases.end());
  return names;
}

std::vector<Flag> FlagsOf(const Outline& outline) {
  std::vector<Flag> flags;
  for (const FlagGroup& group : outline.flags) flags.insert(flags.end(), group.flags.begin(), group.flags.end());
  return flags;
}

// The words that the argument may be: for `help`, those that it explains.
std::vector<std::string> WordsFor(const Flag& argument, const std::vector<Outline>& subcommands,
                                  const std::vector<Topic>& topics) {
  if (argument.value != "TOPIC") return argument.Choices();
  std::vector<std::string> words;
  for (const Outline& subcommand : subcommands) words.push_back(subcommand.name);
  for (const Topic& topic : topics) words.emplace_back(topic.name);
  return words;
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

bool AnyTakesPath(const std::vector<Flag>& flags) {
  for (const Flag& flag : flags) {
    if (flag.TakesPath()) return true;
  }
  return false;
}

// Escapes what would end a part of a specification for zsh's _arguments.
std::string ZshPart(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

// What zsh completes for a value: words, paths, or nothing.
std::string ZshAction(const Flag& flag, const std::vector<std::string>& words) {
  if (!words.empty() && !flag.TakesPath()) return absl::StrCat("(", absl::StrJoin(words, " "), ")");
  if (!words.empty())
    return absl::StrCat("_alternative \"words:word:(", absl::StrJoin(words, " "), ")\" \"files:file:_files\"");
  return flag.TakesPath() ? "_files" : " ";
}

}  // namespace

std::string BashCompletion(const Outline& outline, const std::vector<Outline>& subcommands,
                           const std::vector<Topic>& topics) {
  std::string names;
  for (const Outline& subcommand : subcommands)
    absl::StrAppend(&names, names.empty() ? "" : " ", absl::StrJoin(NamesOf(subcommand), " "));
  const auto flags_of = [](const Outline& of) {
    std::vector<std::string> flags;
    for (const Flag& flag : FlagsOf(of)) {
      for (const std::string& name : flag.names) {
        if (name.rfind("--", 0) == 0) flags.push_back(name);
      }
    }
    return absl::StrJoin(flags, " ");
  };
  std::string out = absl::StrCat(R"(# Completion of reshard in bash, made by: reshard completion bash
_reshard() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} subcommand= flags words= paths= i
  # --flag=value comes as three words.
  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then subcommand=${COMP_WORDS[i]}; break; fi
  done
  case $subcommand in
    '') flags=')",
                                 flags_of(outline), "' words='", names, "' ;;\n");
  for (const Outline& subcommand : subcommands) {
    absl::StrAppend(&out, "    ", absl::StrJoin(NamesOf(subcommand), "|"), ")\n      flags='", flags_of(subcommand),
                    "'\n");
    std::string cases;
    for (const Flag& flag : FlagsOf(subcommand)) {
      if (flag.value.empty()) continue;
      absl::StrAppend(&cases, "        ", absl::StrJoin(flag.names, "|"), ") flags= words='",
                      absl::StrJoin(flag.Choices(), " "), "' paths=", flag.TakesPath() ? "yes" : "", " ;;\n");
    }
    std::vector<std::string> words;
    for (const Flag& argument : subcommand.arguments) {
      for (std::string& word : WordsFor(argument, subcommands, topics)) words.push_back(std::move(word));
    }
    absl::StrAppend(&out, "      case $before in\n", cases, "        *) words='", absl::StrJoin(words, " "),
                    "' paths=", AnyTakesPath(subcommand.arguments) ? "yes" : "", " ;;\n      esac ;;\n");
  }
  return out + R"(  esac
  [[ $word == -* ]] && words= paths=
  [[ $word == -* || -z $words$paths ]] && words+=" $flags"
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  if [[ $paths ]]; then
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _reshard reshard
)";
}

std::string ZshCompletion(const Outline& outline, const std::vector<Outline>& subcommands,
                          const std::vector<Topic>& topics) {
  const auto specifications = [&](const Outline& of) {
    std::string out;
    for (const Flag& flag : FlagsOf(of)) {
      for (const std::string& name : flag.names) {
        std::string text =
            absl::StrCat(flag.repeats ? "*" : "", name, flag.value.empty() ? "" : "=", "[", ZshPart(flag.meaning), "]");
        if (!flag.value.empty()) {
          absl::StrAppend(&text, ":", ZshPart(flag.value), ":", ZshAction(flag, flag.Choices()));
        }
        absl::StrAppend(&out, " \\\n        ", Quoted(text));
      }
    }
    for (const Flag& argument : of.arguments) {
      absl::StrAppend(&out, " \\\n        ",
                      Quoted(absl::StrCat(argument.required ? ":" : "::", ZshPart(argument.names[0]), ":",
                                          ZshAction(argument, WordsFor(argument, subcommands, topics)))));
    }
    return out;
  };
  std::string out = R"(#compdef reshard
# Completion of reshard in zsh, made by: reshard completion zsh
_reshard() {
  local -a subcommands
  subcommands=(
)";
  for (const Outline& subcommand : subcommands) {
    for (const std::string& name : NamesOf(subcommand)) {
      absl::StrAppend(&out, "    ", Quoted(absl::StrCat(name, ":", ZshPart(subcommand.meaning))), "\n");
    }
  }
  absl::StrAppend(&out, R"(  )
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _describe -t subcommands subcommand subcommands
    return
  fi
  local subcommand=$words[2]
  (( CURRENT > 2 )) && { shift words; (( CURRENT-- )); }
  case $subcommand in
)");
  for (const Outline& subcommand : subcommands) {
    absl::StrAppend(&out, "    ", absl::StrJoin(NamesOf(subcommand), "|"), ")\n      _arguments",
                    specifications(subcommand), " ;;\n");
  }
  return absl::StrCat(out, "    *)\n      _arguments", specifications(outline), R"( ;;
  esac
}
if [[ $funcstack[1] == _reshard ]]; then _reshard "$@"; else compdef _reshard reshard; fi
)");
}

std::string FishCompletion(const Outline& outline, const std::vector<Outline>& subcommands,
                           const std::vector<Topic>& topics) {
  std::string out = "# Completion of reshard in fish, made by: reshard completion fish\ncomplete -c reshard -f\n";
  const auto add = [&](const std::string& condition, const std::vector<Flag>& flags) {
    for (const Flag& flag : flags) {
      absl::StrAppend(&out, "complete -c reshard -n ", Quoted(condition));
      for (const std::string& name : flag.names) {
        absl::StrAppend(&out, name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1));
      }
      if (!flag.value.empty()) absl::StrAppend(&out, flag.TakesPath() ? " -r -F" : " -x");
      if (!flag.Choices().empty()) absl::StrAppend(&out, " -a ", Quoted(absl::StrJoin(flag.Choices(), " ")));
      absl::StrAppend(&out, " -d ", Quoted(flag.meaning), "\n");
    }
  };
  add("__fish_use_subcommand", FlagsOf(outline));
  for (const Outline& subcommand : subcommands) {
    for (const std::string& name : NamesOf(subcommand)) {
      absl::StrAppend(&out, "complete -c reshard -n __fish_use_subcommand -a ", name, " -d ",
                      Quoted(subcommand.meaning), "\n");
    }
    const std::string condition = "__fish_seen_subcommand_from " + absl::StrJoin(NamesOf(subcommand), " ");
    add(condition, FlagsOf(subcommand));
    for (const Flag& argument : subcommand.arguments) {
      const std::vector<std::string> words = WordsFor(argument, subcommands, topics);
      if (argument.TakesPath()) absl::StrAppend(&out, "complete -c reshard -n ", Quoted(condition), " -F\n");
      if (!words.empty()) {
        absl::StrAppend(&out, "complete -c reshard -n ", Quoted(condition), " -a ", Quoted(absl::StrJoin(words, " ")),
                        "\n");
      }
    }
  }
  return out;
}

}  // namespace reshard::help
