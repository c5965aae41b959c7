// The flags of `reshard checkpoint`, `reshard verify` and `reshard fingerprint` that say which tensors, byte items and
// auxiliary files of the source are meant, what the tensors and items are called in the result, and what tensors are
// made of them.
#ifndef RESHARD_TOOLS_RESHARD_CHECKPOINT_SELECTION_FLAGS_H_
#define RESHARD_TOOLS_RESHARD_CHECKPOINT_SELECTION_FLAGS_H_

#include <CLI/App.hpp>
#include <string>
#include <utility>
#include <vector>

#include "reshard/checkpoint/recipe.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::tool {

struct SelectionFlags {
  Recipe recipe;
  AuxiliaryFileTerms side_files;

  // `source` is what the flags' help calls the checkpoint that they are about.
  void Declare(CLI::App& app, const std::string& source);
  // Those about auxiliary files, for commands that look at them.
  void DeclareAuxiliaryFiles(CLI::App& app, const std::string& source);
  // After the command line was read: completes `recipe`, from the file that is named, too. Returns an exit code, kOk if
  // all is well.
  int Parse();

 private:
  // Returns an exit code, kOk if all is well.
  int ReadRecipe();
  int ReadDTypes();

  Selection selection_;
  std::vector<std::pair<std::string, DType>> casts_;
  std::vector<std::string> renamings_, dtypes_;
  std::string recipe_file_, rank_local_;
  bool drop_byte_items_ = false, invert_ = false, allow_unmatched_ = false;
};

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_CHECKPOINT_SELECTION_FLAGS_H_
