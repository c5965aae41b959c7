#include "tools/reshard/checkpoint/selection_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {

void SelectionFlags::Declare(CLI::App& app, const std::string& source) {
  const auto each = [&](const char* name, std::vector<std::string>& into, const std::string& help) {
    app.add_option(name, into, help)->allow_extra_args(false);
  };
  each("--include", selection.include,
       "only what has a name in " + source + " that matches (* is any text, ? one character)");
  each("--exclude", selection.exclude, "nothing that has a name in " + source + " that matches; after --include");
  app.add_flag("--weights-only", selection.weights_only,
               "no byte items, and no state of training (optimizer, lr_scheduler, rng_state, train_state, ...)");
  app.add_flag("--drop-byte-items", drop_byte_items_, "no byte items");
  app.add_option("--strip-prefix", selection.strip_prefix, "take this away from the beginning of names");
  each("--rename", renamings_,
       "OLD=NEW: OLD is a pattern, $1 to $9 in NEW are what its * stand for; the first that matches counts");
  app.add_option("--add-prefix", selection.add_prefix, "put this in front of names");
  each("--side-file", side_files.also, "also files beside " + source + " whose paths match");
  app.add_flag("--no-side-files", side_files.none,
               "no files beside " + source + ", not even those that frameworks look for");
}

int SelectionFlags::Parse() {
  selection.byte_items = !drop_byte_items_;
  for (const std::string& text : renamings_) {
    absl::StatusOr<std::pair<std::string, std::string>> renaming = ParseRenaming(text);
    if (!renaming.ok()) return Fail(kUsage, absl::StrCat("--rename: ", renaming.status().message()));
    selection.renamings.push_back(*std::move(renaming));
  }
  return kOk;
}

}  // namespace reshard::tool
