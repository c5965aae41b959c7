#include <c10/util/Exception.h>

#include <cstdio>

#include "reshard/torch/redistribute.h"

int main() {
  try {
    reshard::TensorCommunicator::OfGroup("no group of this name");
  } catch (const c10::Error& error) {
    std::printf("%s\n", error.what_without_backtrace());
    return 0;
  }
  return 1;
}
