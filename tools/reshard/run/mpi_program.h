// Finds the program that runs plans over MPI.
#ifndef RESHARD_TOOLS_RESHARD_RUN_MPI_PROGRAM_H_
#define RESHARD_TOOLS_RESHARD_RUN_MPI_PROGRAM_H_

#include <string>
#include <vector>

namespace reshard::tool {

// The paths where reshard-mpi may be, the best first: beside this program, and where it is installed.
std::vector<std::string> PlacesOfMpiProgram();

// The first of them that can be executed; empty if none can.
std::string FindMpiProgram();

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_RUN_MPI_PROGRAM_H_
