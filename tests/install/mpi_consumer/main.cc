// Rows to columns between the processes of an MPI program.
#include <cstdio>
#include <string>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/mpi/mpi_communicator.h"
#include "reshard/runtime/redistributor.h"

namespace {

absl::Status RowsToColumns(int64_t ranks) {
  const auto comm = reshard::MpiCommunicator::Create(MPI_COMM_WORLD);
  if (!comm.ok()) return comm.status();
  reshard::Redistributor redistributor(comm->get());
  const auto mesh = reshard::ParseMesh("{ranks:" + std::to_string(ranks) + "}");
  if (!mesh.ok()) return mesh.status();
  const auto rows = reshard::ParseLayout("[<ranks>12, 12]", *mesh),
             columns = reshard::ParseLayout("[12, <ranks>12]", *mesh);
  if (!rows.ok()) return rows.status();
  if (!columns.ok()) return columns.status();
  const auto prepared = redistributor.Prepare({*rows, *columns, reshard::DType::kF32});
  if (!prepared.ok()) return prepared.status();
  const reshard::Buffer& from = (*prepared)->source();
  const reshard::Buffer& to = (*prepared)->target();
  std::vector<float> source(static_cast<size_t>(from.bytes) / 4), target(static_cast<size_t>(to.bytes) / 4);
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<float>((*comm)->rank() * static_cast<int64_t>(source.size()) + static_cast<int64_t>(i));
  }
  const auto moved = redistributor.Run(
      *prepared, {reshard::DenseView(static_cast<const void*>(source.data()), from.dtype, from.shape)},
      {reshard::DenseView(static_cast<void*>(target.data()), to.dtype, to.shape)});
  if (!moved.ok()) return moved.status();
  const int64_t width = to.shape[1];
  for (int64_t i = 0; i < to.shape[0] * width; ++i) {
    const int64_t expected = i / width * 12 + (*comm)->rank() * width + i % width;
    if (target[i] != static_cast<float>(expected)) return absl::DataLossError("a wrong element");
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const absl::Status status = RowsToColumns(ranks);
  std::printf("%s\n", status.ToString().c_str());
  MPI_Finalize();
  return status.ok() ? 0 : 1;
}
