#include "tools/reshard/checkpoint/what_is_meant.h"

#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/catalog.h"
#include "tools/reshard/printable.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {

void SayWhatIsMeant(const std::string& path) {
  const std::string directory = DirectoryMeantBy(path);
  if (directory.empty()) return;
  Note(absl::StrCat("reshard: ", Printable(path.substr(path.rfind('/') + 1)), " is a part of the checkpoint in ",
                    Printable(directory), ", which is read"));
}

}  // namespace reshard::tool
