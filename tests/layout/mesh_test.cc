#include "reshard/layout/mesh.h"

#include "absl/hash/hash.h"
#include "reshard/layout/text.h"
#include "tests/layout/gen.h"
#include "tests/property.h"

namespace reshard {
namespace {

using testing::AnyMesh;
using testing::MeshOf;
using testing::Message;

TEST_CASE("devices are row-major, the first axis is the slowest") {
  const auto mesh = MeshOf("{X:4,Y:2}");
  CHECK(mesh.size() == 8);
  CHECK(mesh.stride(0) == 2);
  CHECK(mesh.stride(1) == 1);
  CHECK(mesh.Coordinate(5, 0) == 2);
  CHECK(mesh.Coordinate(5, 1) == 1);
  CHECK(mesh.FindAxis("Y") == 1);
  CHECK_FALSE(mesh.FindAxis("Z").has_value());
  CHECK(mesh.world() == 8);
}

TEST_CASE("the mesh without axes is one device") {
  CHECK(MeshOf("{}").size() == 1);
  CHECK(MeshOf("{}") == Mesh());
  CHECK(MeshOf("{}@5").Device(0) == 5);
  CHECK(MeshOf("{}@5").world() == 6);
}

TEST_CASE("device ids: a first one, or a list") {
  const auto from32 = MeshOf("{X:4}@32");
  CHECK(from32.Device(3) == 35);
  CHECK(from32.Position(33) == 1);
  CHECK_FALSE(from32.Position(31).has_value());
  CHECK_FALSE(from32.Position(36).has_value());

  const auto listed = MeshOf("{X:3}@[7,3,5]");
  CHECK_FALSE(listed.contiguous());
  CHECK(listed.Device(0) == 7);
  CHECK(listed.Position(3) == 1);
  CHECK_FALSE(listed.Position(4).has_value());
  CHECK(listed.world() == 8);
}

TEST_CASE("equal meshes have equal axes and ids, however written") {
  CHECK(MeshOf("{X:3}@[4,5,6]") == MeshOf("{X:3}@4"));
  CHECK(MeshOf("{X:3}@0") == MeshOf("{X:3}"));
  CHECK_FALSE(MeshOf("{X:3}@1") == MeshOf("{X:3}"));
  CHECK_FALSE(MeshOf("{X:3}@[2,1,0]") == MeshOf("{X:3}"));
  CHECK_FALSE(MeshOf("{X:2,Y:3}") == MeshOf("{X:3,Y:2}"));
  CHECK_FALSE(MeshOf("{X:3}") == MeshOf("{Y:3}"));
}

TEST_CASE("equal meshes hash equally, and one that was moved from is what it was") {
  CHECK(absl::HashOf(MeshOf("{X:3}@[4,5,6]")) == absl::HashOf(MeshOf("{X:3}@4")));
  CHECK(absl::HashOf(MeshOf("{}")) == absl::HashOf(Mesh()));
  // Not promised, but a hash that tells none of these apart would be of no use.
  CHECK(absl::HashOf(MeshOf("{X:3}@1")) != absl::HashOf(MeshOf("{X:3}")));
  CHECK(absl::HashOf(MeshOf("{X:2,Y:3}")) != absl::HashOf(MeshOf("{X:3,Y:2}")));
  CHECK(absl::HashOf(MeshOf("{X:3}@[2,1,0]")) != absl::HashOf(MeshOf("{X:3}")));
  Mesh from = MeshOf("{X:3}@[7,3,5]");
  const Mesh to = std::move(from);
  CHECK(from == to);  // NOLINT(bugprone-use-after-move)
  CHECK(from.Position(5) == 2);
}

TEST_CASE("mesh text is canonical") {
  CHECK(ToString(MeshOf(" { X : 4 ,\tY:2 } @ 32 ")) == "{X:4,Y:2}@32");
  CHECK(ToString(MeshOf("{X:4}@0")) == "{X:4}");
  CHECK(ToString(MeshOf("{X:3}@[4, 5, 6]")) == "{X:3}@4");
  CHECK(ToString(MeshOf("{X:2}@[7,3]")) == "{X:2}@[7,3]");
  CHECK(ToString(MeshOf("{}@[0]")) == "{}");
  CHECK(ToString(MeshOf("{_a.b9:1}")) == "{_a.b9:1}");
}

TEST_CASE("meshes round-trip through text") {
  rc::prop("any mesh", [] {
    const auto mesh = AnyMesh();
    const absl::StatusOr<Mesh> back = ParseMesh(ToString(mesh));
    RC_ASSERT(back.ok());
    RC_ASSERT(*back == mesh);
    RC_ASSERT(ToString(*back) == ToString(mesh));
  });
}

TEST_CASE("positions and devices are inverse") {
  rc::prop("any mesh", [] {
    const auto mesh = AnyMesh();
    for (int64_t p = 0; p < mesh.size(); ++p) {
      RC_ASSERT(mesh.Position(mesh.Device(p)) == p);
      RC_ASSERT(mesh.Device(p) < mesh.world());
      int64_t row_major = 0;
      for (int a = 0; a < mesh.num_axes(); ++a) row_major = row_major * mesh.axis(a).size + mesh.Coordinate(p, a);
      RC_ASSERT(row_major == p);
    }
  });
}

TEST_CASE("bad meshes are refused with the reason and the column") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "expected '{', found the end at column 1"},
      {"X:2", "expected '{', found X at column 1"},
      {"{X:2", "expected '}', found the end at column 5"},
      {"{X}", "expected ':', found '}' at column 3"},
      {"{X:}", "expected the size of the axis, found '}' at column 4"},
      {"{X:0}", "the size of an axis must be at least 1 at column 4"},
      {"{X:-2}", "sizes cannot be negative at column 4"},
      {"{X:2,}", "expected the name of an axis, found '}' at column 6"},
      {"{2:X}", "expected the name of an axis, found '2' at column 2"},
      {"{X:2,X:2}", "the mesh has two axes named X at column 1"},
      {"{X:4194305}", "the mesh has more than 4194304 devices at column 1"},
      {"{X:4294967296,Y:4294967296}", "the mesh has more than 4194304 devices at column 1"},
      {"{X:9223372036854775808}", "the number does not fit a signed 64-bit integer at column 4"},
      {"{X:2}@", "expected the first device id, or '[', found the end at column 7"},
      {"{X:2}@-1", "sizes cannot be negative at column 7"},
      {"{X:2}@2147483647", "device ids must lie in 0..2147483647; the first one is 2147483647 at column 7"},
      {"{X:2}@[1]", "the mesh has 2 devices but 1 ids are given at column 7"},
      {"{X:2}@[1,1]", "device 1 is given twice at column 7"},
      {"{X:2}@[]", "expected a device id, found ']' at column 8"},
      {"{X:2}@[1,2147483648]", "device ids must lie in 0..2147483647; one of them is 2147483648 at column 7"},
      {"{X:2}x", "expected the end, found x at column 6"},
      {"{\xC3\xA9:2}", "expected the name of an axis, found the byte 0xC3; only ASCII text is read at column 2"},
      {std::string("{X\0:2}", 6), "expected ':', found the byte 0x00; only ASCII text is read at column 3"},
  };
  for (const auto& [text, reason] : cases) {
    CAPTURE(text);
    const absl::StatusOr<Mesh> mesh = ParseMesh(text);
    REQUIRE_FALSE(mesh.ok());
    CHECK(mesh.status().code() == absl::StatusCode::kInvalidArgument);
    const std::string message = Message(mesh.status());
    CHECK(message.substr(0, message.find('\n')) == reason);
  }
}

TEST_CASE("the limits themselves are allowed") {
  CHECK(MeshOf("{X:4194304}").size() == kMaxDevices);
  CHECK(MeshOf("{X:2}@2147483646").world() == kMaxDeviceId);
}

TEST_CASE("Create checks what text cannot say") {
  CHECK_FALSE(Mesh::Create({{"", 2}}).ok());
  CHECK_FALSE(Mesh::Create({{"a b", 2}}).ok());
  CHECK_FALSE(Mesh::Create({{"a\n", 2}}).ok());
  CHECK_FALSE(Mesh::Create({{"a", 0}}).ok());
  CHECK_FALSE(Mesh::Create({{"a", -2}, {"b", -2}}).ok());
  CHECK_FALSE(Mesh::Create({{"a", 2}}, int64_t{-1}).ok());
  CHECK_FALSE(Mesh::Create({{"a", 2}}, INT64_MAX).ok());
  CHECK_FALSE(Mesh::Create({{"a", 2}}, std::vector<int64_t>{0, -1}).ok());
  CHECK_FALSE(Mesh::Create({{"a", 2}}, std::vector<int64_t>{}).ok());
  std::vector<Mesh::Axis> many(1025, {"a", 1});
  for (size_t i = 0; i < many.size(); ++i) many[i].name += std::to_string(i);
  CHECK_FALSE(Mesh::Create(many).ok());
}

}  // namespace
}  // namespace reshard
