#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/checkpoint/https.h"
#include "reshard/nccl/gpus.h"
#include "reshard/nccl/nccl_api.h"
#include "tools/reshard/doctor/examine.h"
#include "tools/reshard/doctor/python_packages.h"
#include "tools/reshard/run/mpi_program.h"

namespace reshard::doctor {
namespace {

std::string CudaVersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

// "2 x NVIDIA H100 (9.0)" for equal ones.
std::string GpusText(const std::vector<Gpu>& gpus) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const Gpu& gpu : gpus) {
    const std::string kind = absl::StrCat(gpu.name, " (compute capability ", gpu.major, ".", gpu.minor, ")");
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
    if (known == kinds.end()) {
      kinds.emplace_back(kind, 1);
    } else {
      ++known->second;
    }
  }
  return absl::StrJoin(kinds, ", ", [](std::string* out, const auto& kind) {
    absl::StrAppend(out, kind.second > 1 ? absl::StrCat(kind.second, " x ") : "", kind.first);
  });
}

std::vector<Finding> Gpus() {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (!list.ok()) {
    return {{"GPUs", State::kMissing, std::string(list.status().message()),
             "plans, checkpoints and host memory need none; tensors on GPUs do"}};
  }
  return {{"GPUs", State::kThere, GpusText(list->gpus), ""},
          {"CUDA driver", State::kThere, absl::StrCat("for CUDA ", CudaVersionText(list->driver_version)), ""}};
}

// PyTorch ships a copy, which its processes use: for them NCCL need not be where the loader finds it.
Finding Nccl(const std::vector<std::string>& folders) {
  const absl::StatusOr<const NcclApi*> api = LoadNcclApi();
  if (api.ok()) {
    return {"NCCL", State::kThere, absl::StrCat(NcclVersionText((*api)->version), ", ", (*api)->origin), ""};
  }
  for (const std::string& folder : folders) {
    const std::string path = folder + "/nvidia/nccl/lib/libnccl.so.2";
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      return {"NCCL", State::kThere, absl::StrCat("only for processes with PyTorch: ", path), ""};
    }
  }
  return {"NCCL", State::kMissing, std::string(api.status().message()), "only tensors on GPUs need it"};
}

Finding Torch(const std::vector<std::string>& folders) {
  const std::optional<PythonPackage> torch = FindPackage("torch", folders);
  if (!torch) {
    return {"PyTorch", State::kMissing, "not in the active Python",
            "reshard.redistribute and everything on tensors needs it; plans and checkpoints do not"};
  }
  return {"PyTorch", State::kThere, absl::StrCat(torch->version, ", in ", torch->folder), ""};
}

Finding Package(const std::vector<std::string>& folders) {
  const std::optional<PythonPackage> package = FindPackage("reshard", folders);
  if (!package) {
    return {"import reshard", State::kMissing, "not in the active Python",
            "pip install the wheel (tools/wheel.sh makes it)"};
  }
  std::error_code error;
  const bool with_torch = std::filesystem::exists(package->folder + "/reshard/torch/libreshard_torch.so", error);
  return {"import reshard", State::kThere,
          absl::StrCat(package->version, with_torch ? ", with" : ", without", " its part for PyTorch"), ""};
}

Finding Mpi() {
  const std::string program = tool::FindMpiProgram();
  if (!program.empty()) return {"MPI", State::kThere, program, ""};
  return {"MPI", State::kMissing, "no reshard-mpi beside this program",
          "only `reshard run --over mpi` needs it; a build with RESHARD_BUILD_MPI=ON has it"};
}

std::vector<Finding> Https() {
  const absl::StatusOr<std::string> library = HttpsLibrary();
  if (!library.ok()) {
    return {{"https", State::kMissing, std::string(library.status().message()),
             "only checkpoints on https servers need it"}};
  }
  const char* const chosen = std::getenv("SSL_CERT_FILE");
  std::vector<std::string> places = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                     "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"};
  if (chosen != nullptr && *chosen != '\0') places = {chosen};
  for (const std::string& place : places) {
    std::error_code error;
    if (std::filesystem::exists(place, error)) {
      return {{"https", State::kThere, *library, ""}, {"certificates", State::kThere, place, ""}};
    }
  }
  return {{"https", State::kThere, *library, ""},
          {"certificates", State::kMissing, "none at " + absl::StrJoin(places, ", "),
           "no https server is trusted; on Debian: apt-get install ca-certificates, or set SSL_CERT_FILE"}};
}

}  // namespace

Section ExamineLibraries() {
  Section section{"Libraries", Gpus()};
  const std::vector<std::string> folders = PackageFolders();
  section.findings.push_back(Nccl(folders));
  section.findings.push_back(Torch(folders));
  section.findings.push_back(Package(folders));
  section.findings.push_back(Mpi());
  for (Finding& finding : Https()) section.findings.push_back(std::move(finding));
  return section;
}

}  // namespace reshard::doctor
