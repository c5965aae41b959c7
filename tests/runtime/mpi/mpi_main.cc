// main() of the tests that mpirun starts: every rank runs all of them, in the same order.
#define CATCH_CONFIG_RUNNER
#include <mpi.h>

#include <cstdio>

#include "tests/catch.h"

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  const int failed = Catch::Session().run(argc, argv);
  MPI_Finalize();
  return failed;
}
