#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "python/core/module.h"
#include "tools/reshard/commands.h"

namespace reshard::core {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

// Called once per process, which then exits with the code that it returns.
int Command(std::vector<std::string> words) {
  const nb::gil_scoped_release release;  // stores take it for their calls
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int code = tool::CommandMain(static_cast<int>(words.size()), arguments.data());
  std::cout.flush();
  std::fflush(stdout);
  return code;
}

}  // namespace

void AddCommand(nb::module_& module) { module.def("command", &Command, "words"_a); }

}  // namespace reshard::core
