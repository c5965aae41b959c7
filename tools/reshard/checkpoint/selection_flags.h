// The flags of `reshard checkpoint`, `reshard verify` and `reshard fingerprint` that select tensors, byte items and
// auxiliary files of the source, name the tensors and items in the result, and say what tensors are made of them.
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

  // `source` is the name of the checkpoint in the flags' help.
  void Declare(CLI::App& app, const std::string& source);
  // The flags about auxiliary files, for commands that look at them.
  void DeclareAuxiliaryFiles(CLI::App& app, const std::string& source);
  // Called after the command line is read: completes `recipe`, also from the recipe file if one is named. Returns an
  // exit code, kOk if all is well.
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
