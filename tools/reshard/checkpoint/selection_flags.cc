#include "tools/reshard/checkpoint/selection_flags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/layout/dtype.h"
#include "reshard/planner/option_text.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/printable.h"
#include "tools/reshard/problem.h"

namespace reshard::tool {

void SelectionFlags::Declare(CLI::App& app, const std::string& source) {
  app.option_defaults()->group("Select, rename and cast");
  const auto each = [&](const char* name, std::vector<std::string>& into, const std::string& help, const char* value) {
    app.add_option(name, into, help)->allow_extra_args(false)->type_name(value);
  };
  each("--include", selection_.include, "keep only names in " + source + " that match (* is any text, ? one character)",
       "PATTERN");
  each("--exclude", selection_.exclude, "leave out names in " + source + " that match; applied after --include",
       "PATTERN");
  app.add_flag("--weights-only", selection_.weights_only,
               "leave out byte items and training state: optimizers, schedulers, scalers, random number generators, "
               "counters");
  app.add_flag("--drop-byte-items", drop_byte_items_, "leave out byte items and other values that are not tensors");
  app.add_flag("--partial", selection_.partial, "continue even if files of " + source + " are missing");
  app.add_option("--rank-local", rank_local_,
                 "keep: take what differs between the ranks' files from each rank, as NAME.rank_0, ...")
      ->type_name("keep");
  app.add_option("--strip-prefix", selection_.strip_prefix, "remove this from the beginning of names")
      ->type_name("PREFIX");
  each("--rename", renamings_,
       "rename what matches the pattern OLD; $1 to $9 in NEW are what its * match; the first match counts", "OLD=NEW");
  app.add_option("--add-prefix", selection_.add_prefix, "add this to the beginning of names")->type_name("PREFIX");
  each("--dtype", dtypes_,
       "cast f16, bf16, f32 and f64 tensors to DTYPE; PATTERN matches names in the result, the first match "
       "counts, and a dtype without a pattern comes last",
       "[PATTERN=]DTYPE");
  app.add_option("--recipe", recipe_file_,
                 "a JSON file (reshard.recipe/1) that says how to build tensors from those in " + source)
      ->type_name("FILE");
  app.add_flag("--invert", invert_, "apply the recipe backwards: rebuild its inputs from its outputs");
  app.add_flag("--allow-unmatched", allow_unmatched_,
               "let a PATTERN, PREFIX or OLD of these flags match nothing, which is an error otherwise");
}

void SelectionFlags::DeclareAuxiliaryFiles(CLI::App& app, const std::string& source) {
  app.add_option("--side-file", side_files.also, "also copy files beside " + source + " whose paths match")
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  app.add_flag("--no-side-files", side_files.none,
               "copy no files beside " + source + ", not even those that frameworks look for");
}

int SelectionFlags::ReadRecipe() {
  if (recipe_file_.empty()) return invert_ ? Fail(kUsage, "--invert needs --recipe") : kOk;
  const absl::StatusOr<std::string> text = ReadFile(recipe_file_);
  if (!text.ok()) return Fail(kIo, std::string(text.status().message()));
  absl::StatusOr<Recipe> read = Recipe::Parse(*text);
  if (read.ok() && invert_) read = read->Inverted();
  if (!read.ok()) return Fail(kBadInput, absl::StrCat(Printable(recipe_file_), ": ", read.status().message()));
  recipe = *std::move(read);
  return kOk;
}

int SelectionFlags::ReadDTypes() {
  std::vector<std::pair<std::string, DType>> patterns, others;
  for (const std::string& text : dtypes_) {
    const size_t equals = text.rfind('=');
    const std::string name = equals == std::string::npos ? text : text.substr(equals + 1);
    const std::optional<DType> dtype = FindDType(name);
    if (!dtype) return Fail(kUsage, absl::StrCat("--dtype: there is no dtype ", Printable(name), ": ", KnownDTypes()));
    if (equals == std::string::npos) {
      others.emplace_back("*", *dtype);
    } else {
      patterns.emplace_back(text.substr(0, equals), *dtype);
    }
  }
  if (others.size() > 1) return Fail(kUsage, "--dtype without a pattern is given twice");
  // The command line takes precedence over the recipe.
  patterns.insert(patterns.end(), others.begin(), others.end());
  casts_ = std::move(patterns);
  return kOk;
}

int SelectionFlags::Parse() {
  if (const int bad = ReadRecipe(); bad != kOk) return bad;
  if (const int bad = ReadDTypes(); bad != kOk) return bad;
  for (const std::string& text : renamings_) {
    absl::StatusOr<std::pair<std::string, std::string>> renaming = ParseRenaming(text);
    if (!renaming.ok()) return Fail(kUsage, absl::StrCat("--rename: ", renaming.status().message()));
    selection_.renamings.push_back(*std::move(renaming));
  }
  if (!rank_local_.empty() && rank_local_ != "keep") {
    return Fail(kUsage, absl::StrCat("--rank-local is keep, not ", Clipped(rank_local_)));
  }
  selection_.byte_items = !drop_byte_items_;
  selection_.keep_rank_local = !rank_local_.empty();
  if (const absl::Status refined = recipe.Refine(selection_, casts_); !refined.ok()) {
    return Fail(kUsage, std::string(refined.message()));
  }
  if (allow_unmatched_) recipe.asked = {};
  side_files.may_match_nothing = allow_unmatched_;
  return kOk;
}

}  // namespace reshard::tool
