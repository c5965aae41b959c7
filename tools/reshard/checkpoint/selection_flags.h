// The flags of `reshard checkpoint` and `reshard verify` that say which tensors, byte items and side files of the
// source are meant, and what the tensors and items are called in the result.
#ifndef RESHARD_TOOLS_RESHARD_CHECKPOINT_SELECTION_FLAGS_H_
#define RESHARD_TOOLS_RESHARD_CHECKPOINT_SELECTION_FLAGS_H_

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "reshard/checkpoint/selection.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::tool {

struct SelectionFlags {
  Selection selection;
  SideFileTerms side_files;

  // `source` is what the flags' help calls the checkpoint that they are about.
  void Declare(CLI::App& app, const std::string& source);
  // After the command line was read: completes `selection`. Returns an exit code, kOk if all is well.
  int Parse();

 private:
  std::vector<std::string> renamings_;
  bool drop_byte_items_ = false;
};

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_CHECKPOINT_SELECTION_FLAGS_H_
