// A small distributed checkpoint that a test breaks in one place: tensor "w", float32 [2, 3], in a.distcp.
#ifndef RESHARD_TESTS_ATTACKS_DCP_CHECKPOINT_H_
#define RESHARD_TESTS_ATTACKS_DCP_CHECKPOINT_H_

#include <string>
#include <vector>

#include "tests/attacks/refuses.h"
#include "tests/checkpoint/formats/dcp_bytes.h"
#include "tests/checkpoint/formats/safetensors_file.h"

namespace reshard::testing {

class DcpCheckpoint {
 public:
  DcpCheckpoint() {
    const std::string bytes = StreamText().Bytes();
    Write("good", dcp::Metadata({{dcp::Str("w"), dcp::Whole({2, 3})}}, {{dcp::Index("w", {0, 0}), Place(bytes)}}));
    dir_.Write("good/a.distcp", bytes);
  }

  const TemporaryDirectory& dir() const { return dir_; }
  std::string good() const { return dir_.path("good"); }
  std::string bad() const { return dir_.path("bad"); }

  static std::string Place(const std::string& stream) {
    return dcp::Place("a.distcp", 0, static_cast<int64_t>(stream.size()));
  }

  // The value of `.metadata` of the checkpoint `name`.
  void Write(const std::string& name, const std::string& metadata) const {
    dir_.Write(name + "/.metadata", pickled::Pickled(metadata));
  }

  // With this stream in place of the good one. Whoever needs the elements refuses it.
  void RefusesStream(const std::string& bytes, const std::string& part) const {
    Write("bad", dcp::Metadata({{dcp::Str("w"), dcp::Whole({2, 3})}}, {{dcp::Index("w", {0, 0}), Place(bytes)}}));
    dir_.Write("bad/a.distcp", bytes);
    RefusesElements(part);
  }
  void Refuses(const StreamText& stream, const std::string& part) const { RefusesStream(stream.Bytes(), part); }

  void RefusesElements(const std::string& part) const {
    CommandRefuses({"verify", bad(), good()}, part);
    CommandRefuses({"checkpoint", bad(), dir_.path("out"), "--mesh", "{x:1}", "--layout", "[...]"}, part);
  }

  // With this metadata; `files`: there is the good stream.
  void RefusesMetadata(const std::string& metadata, const std::string& part) const {
    Write("bad", metadata);
    dir_.Write("bad/a.distcp", StreamText().Bytes());
    CommandRefuses({"inspect", bad()}, part);
    CommandRefuses({"verify", bad(), good()}, part);
  }

 private:
  TemporaryDirectory dir_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_ATTACKS_DCP_CHECKPOINT_H_
