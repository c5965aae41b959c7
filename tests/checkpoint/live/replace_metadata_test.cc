// A checkpoint in place of another in the same directory, with an error or death at every call of the system: what is
// there is the old one or the new one, whole, and what others put there stays.
#include "checkpoint/live/replace_metadata.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/formats/dcp/write_metadata.h"
#include "checkpoint/live/stream_file.h"
#include "reshard/live/stored_checkpoint.h"
#include "status/macros.h"
#include "tests/catch.h"
#include "tests/checkpoint/io/faults.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard::testing {
namespace {

namespace fs = std::filesystem;
using Where = TempDirectory::Where;

constexpr int64_t kElements = 5000;

// Elements that say which save they are of.
std::vector<int32_t> Elements(int32_t save) {
  std::vector<int32_t> elements(kElements);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = save * 100000 + static_cast<int32_t>(i);
  return elements;
}

// Writes the streams of a save under these names, a half of the tensor in each.
absl::StatusOr<live::NewMetadata> WriteStreams(const std::string& directory, int32_t save,
                                               const std::vector<std::string>& files) {
  const std::vector<int32_t> elements = Elements(save);
  const std::vector<int64_t> shape = {kElements}, size = {kElements / 2}, offsets[] = {{0}, {kElements / 2}};
  dcp::MetadataTensor tensor{"w", DType::kI32, shape, false, {}};
  live::NewMetadata metadata;
  for (size_t part = 0; part < 2; ++part) {
    const std::string& name = files[part % files.size()];
    ASSIGN_OR_RETURN(const auto file, live::StreamFile::Create(directory + "/" + name));
    RETURN_IF_ERROR(file->Begin(DType::kI32, size));
    const auto* const bytes = reinterpret_cast<const char*>(&elements[part * kElements / 2]);
    RETURN_IF_ERROR(file->Append({bytes, 100}));
    RETURN_IF_ERROR(file->Append({bytes + 100, kElements * 2 - 100}));
    ASSIGN_OR_RETURN(const live::Stream stream, file->End());
    RETURN_IF_ERROR(file->Finish(true));
    tensor.chunks.push_back({offsets[part], size, {static_cast<int32_t>(part), stream.at, stream.length}});
    metadata.chunks.push_back({name, stream.at, stream.length, stream.hash});
    metadata.files.push_back(name);
  }
  metadata.bytes = dcp::WriteMetadata({tensor}, {}, {}, files, {}, "a", "b");
  return metadata;
}

absl::Status Save(const std::string& directory, int32_t save, const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const live::NewMetadata metadata, WriteStreams(directory, save, files));
  return live::ReplaceMetadata(directory, metadata);
}

// The save that the checkpoint is of, all of it, with its checksums and the sidecar's hashes; -1: it cannot be read.
int32_t SaveOf(const std::string& directory) {
  absl::StatusOr<StoredCheckpoint> stored = StoredCheckpoint::Open(directory, {});
  INFO(stored.status());
  if (!stored.ok()) return -1;
  std::vector<int32_t> elements(kElements);
  const BoxRead box{0, {0}, DenseView(static_cast<void*>(elements.data()), DType::kI32, {kElements})};
  const absl::Status read = stored->Read({&box, 1});
  INFO(read);
  if (!read.ok()) return -1;
  const int32_t save = elements[0] / 100000;
  return elements == Elements(save) ? save : -1;
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void Write(const std::string& path) { std::ofstream(path) << "others'"; }

TEST_CASE("a checkpoint in place of another, others' files beside it") {
  const TempDirectory directory(Where::kInMemory);
  for (const char* name : {"common.pt", "metadata.json", "__notes.txt", "__x_0.distcp.txt"}) Write(directory / name);
  REQUIRE(Save(directory.path(), 1, {"__0_0.distcp", "__1_0.distcp"}).ToString() == "OK");
  CHECK(SaveOf(directory.path()) == 1);
  Write(directory / "__7_0.distcp");  // of a save that was interrupted
  Write(directory / "__0.metadata");  // of one without collectives
  REQUIRE(Save(directory.path(), 2, {"__0_0.abc.distcp", "__1_0.abc.distcp"}).ToString() == "OK");
  CHECK(SaveOf(directory.path()) == 2);
  CHECK(NamesIn(directory.path()) == std::vector<std::string>{".metadata", "__0_0.abc.distcp", "__1_0.abc.distcp",
                                                              "__notes.txt", "__x_0.distcp.txt", "common.pt",
                                                              "metadata.json", "reshard.json"});
}

TEST_CASE("an error or death at every call leaves the old checkpoint or the new one") {
  // What opens a directory, and says that it failed, has lost it.
  const std::set<Call> lasting = {Call::kPWrite, Call::kFSync,    Call::kClose,
                                  Call::kUnlink, Call::kUnlinkAt, Call::kRename};
  for (Fault fault : {Fault{.kind = Fault::kFails}, Fault{.kind = Fault::kCrash}, Fault{.kind = Fault::kHalf},
                      Fault{.kind = Fault::kDoneButFails, .calls = lasting}}) {
    bool more = true;
    for (fault.at = 0; more; ++fault.at) {
      INFO("kind " << static_cast<int>(fault.kind) << ", call " << fault.at);
      const TempDirectory directory(Where::kInMemory);
      Write(directory / "common.pt");
      REQUIRE(Save(directory.path(), 1, {"__0_0.distcp", "__1_0.distcp"}).ok());
      absl::Status saved;
      {
        FaultySystem system(fault);
        const io::ScopedSystem scoped(&system);
        saved = Save(directory.path(), 2, {"__0_0.abc.distcp", "__1_0.abc.distcp"});
        CHECK(system.open() == 0);
        more = system.happened();
      }
      const int32_t now = SaveOf(directory.path());
      CHECK(now == (saved.ok() ? 2 : std::clamp(now, 1, 2)));
      CHECK(fs::exists(directory / "common.pt"));
      // The next one goes well, and leaves nothing of those before.
      REQUIRE(Save(directory.path(), 3, {"__0_0.def.distcp", "__1_0.def.distcp"}).ToString() == "OK");
      CHECK(SaveOf(directory.path()) == 3);
      CHECK(NamesIn(directory.path()) ==
            std::vector<std::string>{".metadata", "__0_0.def.distcp", "__1_0.def.distcp", "common.pt", "reshard.json"});
    }
  }
}

TEST_CASE("a stream is begun, filled and ended, and nothing else") {
  const TempDirectory directory(Where::kInMemory);
  const auto file = live::StreamFile::Create(directory / "__0_0.distcp").value();
  CHECK(absl::IsAlreadyExists(live::StreamFile::Create(directory / "__0_0.distcp").status()));
  CHECK_FALSE(file->Append("x").ok());
  CHECK_FALSE(file->End().ok());
  CHECK(live::StreamFile::StreamBytes(DType::kF32, {int64_t{1} << 31}) == -1);
  CHECK(live::StreamFile::StreamBytes(DType::kF32, {INT64_MAX, 3}) == -1);
  CHECK(live::StreamFile::StreamBytes(DType::kF32, {-1}) == -1);
  REQUIRE(file->Begin(DType::kU8, {3}).ok());
  CHECK_FALSE(file->Begin(DType::kU8, {3}).ok());
  CHECK_FALSE(file->AddBytes("x").ok());
  CHECK(file->Append("ab").ok());
  CHECK_FALSE(file->End().ok());
  CHECK_FALSE(file->Append("cd").ok());
  CHECK_FALSE(file->Finish(false).ok());
  CHECK(file->Append("c").ok());
  CHECK(file->End()->hash == hash::ContentHash::Of("abc"));
  CHECK(file->AddBytes("value")->at % 64 == 0);
  CHECK(file->Finish(true).ok());
}

}  // namespace
}  // namespace reshard::testing
