// Where the program begins. The stores for URLs such as s3://bucket, and the readers of Orbax, GGUF and the like, are
// in Python, and this program has none of them. With such a URL or path among its arguments it becomes `python3 -m
// reshard`, which is the same command with them.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/store.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace {

// The Python beside the command, as in an environment with the wheel, or else the one in PATH.
std::string FindPython() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = self.parent_path() / "python3";
  return !error && std::filesystem::exists(beside, error) ? beside.string() : "python3";
}

// Becomes Python, which `what` needs, along with the package's `extra`.
int BecomePython(const std::string& what, const std::string& extra, int argc, char** argv) {
  std::string program = absl::StrCat(
      "import sys\n"
      "try: from reshard.__main__ import main\n"
      "except ImportError as error:\n"
      "  print('reshard: ",
      what, " need the Python package beside the command: pip install \"reshard[", extra,
      "]\" ('\n"
      "        + str(error) + ')', file=sys.stderr)\n"
      "  sys.exit(5)\n"
      "main()\n");
  std::string python = FindPython(), flag = "-c";
  std::vector<char*> arguments = {python.data(), flag.data(), program.data()};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  arguments.push_back(nullptr);
  execvp(python.c_str(), arguments.data());
  return reshard::tool::Fail(reshard::tool::kIo, absl::StrCat(what, " need Python, and there is no ", python,
                                                              ": pip install 'reshard[", extra, "]'"));
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (const std::string scheme = reshard::StoreSchemeOf(argv[i]); !scheme.empty()) {
      return BecomePython(absl::StrCat("URLs of ", scheme, "://"), "stores", argc, argv);
    }
    if (const std::string reader = reshard::StoreNeededFor(argv[i]); !reader.empty()) {
      return BecomePython(absl::StrCat("checkpoints of ", reader), reader, argc, argv);
    }
  }
  return reshard::tool::CommandMain(argc, argv);
}
