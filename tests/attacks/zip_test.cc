// Streams whose archive is wrong on purpose.
#include "tests/attacks/dcp_checkpoint.h"
#include "tests/catch.h"

namespace reshard::testing {
namespace {

using Records = std::vector<ZipRecord>;

// The records of the good stream after `change`.
template <typename F>
std::string With(const F& change, const ZipEnd& end = {}) {
  Records records = StreamText().Records();
  change(&records);
  return ZipBytes(records, end);
}
std::string WithEnd(const ZipEnd& end) {
  return With([](Records*) {}, end);
}

TEST_CASE("zip: the archives that the others are made from are good") {
  const DcpCheckpoint checkpoint;
  for (const ZipEnd& end :
       {ZipEnd{}, ZipEnd{.zip64 = true},
        ZipEnd{.count = 0xffff, .directory_at = 0xffffffff, .directory_bytes = 0xffffffff, .zip64 = true}}) {
    const std::string bytes = WithEnd(end);
    checkpoint.Write("bad", dcp::Metadata({{dcp::Str("w"), dcp::Whole({2, 3})}},
                                          {{dcp::Index("w", {0, 0}), DcpCheckpoint::Place(bytes)}}));
    checkpoint.dir().Write("bad/a.distcp", bytes);
    const Outcome same = RunReshard({"verify", checkpoint.bad(), checkpoint.good()});
    INFO(same.err);
    CHECK(same.code == 0);
  }
}

TEST_CASE("zip: records that overlap or lie outside") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const std::string& bytes, const std::string& part) {
    checkpoint.RefusesStream(bytes, part);
  };
  refuses(With([](Records* r) { (*r)[2].header_at = (*r)[1].header_at.value_or(0); }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[2].header_at = 0; }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[3].header_at = 0xfffffff0; }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[3].header_at = 1; }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[2].length = 25 + 64; }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[2].length = 0xfffffffe; }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[3].length = 100; }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[2].local_extra = 0xffff; }), "overlaps what comes after");
  refuses(With([](Records* r) { (*r)[2].header_at = 7; }), "overlaps");
  // Headers of other records, or none, where the directory says.
  refuses(With([](Records* r) {
            (*r)[2].content.insert(0, 60, 'x');
            (*r)[2].header_at = 950;
          }),
          "");
}

TEST_CASE("zip: headers that contradict the directory") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const std::string& bytes, const std::string& part) {
    checkpoint.RefusesStream(bytes, part);
  };
  for (const size_t record : {size_t{0}, size_t{1}, size_t{2}}) {
    refuses(With([&](Records* r) { (*r)[record].local_name = std::string((*r)[record].name.size(), 'x'); }),
            "differs from the directory");
    refuses(With([&](Records* r) { (*r)[record].crc = 1; }), "CRC-32");
    refuses(With([&](Records* r) { (*r)[record].method = 8; }),
            record == 2 ? "is read only where it is not" : "does not unpack");
    refuses(With([&](Records* r) { (*r)[record].method = 99; }), "is compressed by method 99");
    refuses(With([&](Records* r) { (*r)[record].flags = 1; }), "is encrypted");
    refuses(With([&](Records* r) { (*r)[record].flags = 1 << 6; }), "is encrypted");
    refuses(With([&](Records* r) { (*r)[record].flags = 1 << 13; }), "is encrypted");
    refuses(With([&](Records* r) { (*r)[record].stored_length = 7; }),
            "contradicts itself about the size of the record");
    refuses(With([&](Records* r) { (*r)[record].disk = 1; }), "several disks");
  }
  refuses(With([](Records* r) { (*r)[2].crc = 0; }), "CRC-32");
  refuses(With([](Records* r) { (*r)[2].length = 23; }), "of 6 elements in a record of 23 bytes");
}

TEST_CASE("zip: names") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const std::string& bytes, const std::string& part) {
    checkpoint.RefusesStream(bytes, part);
  };
  refuses(With([](Records* r) { r->push_back((*r)[2]); }), "two records are called \"archive/data/0\"");
  refuses(With([](Records* r) { r->push_back((*r)[0]); }), "two records are called");
  refuses(With([](Records* r) {
            r->push_back((*r)[0]);
            r->back().name = "other/data.pkl";
          }),
          "two descriptions");
  for (const char* name : {"../data.pkl", "/data.pkl", "archive/../data.pkl", "data.pkl", "archive/x/data.pkl"}) {
    INFO(name);
    refuses(With([&](Records* r) { (*r)[0].name = name; }), "");
  }
  refuses(With([](Records* r) { (*r)[0].name.clear(); }), "no description");
  refuses(With([](Records* r) { (*r)[2].name = "archive/data/../data/0"; }), "no record of the elements");
  refuses(With([](Records* r) { (*r)[2].name = std::string(5000, 'x'); }), "the directory is broken");
  refuses(With([](Records* r) { r->resize(1); }), "no record of the elements");
  refuses(With([](Records* r) { r->clear(); }), "no description");
}

TEST_CASE("zip: ends that lie") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const ZipEnd& end, const std::string& part) {
    checkpoint.RefusesStream(WithEnd(end), part);
  };
  refuses({.count = 3}, "another number of records");
  refuses({.count = 5}, "another number of records");
  refuses({.count = 0xfffe}, "another number of records");
  refuses({.count = 4, .count_here = 3}, "several disks");
  refuses({.disk = 1}, "several disks");
  refuses({.directory_at = 0}, "not where the end record says");
  refuses({.directory_at = 0xfffffff0}, "not where the end record says");
  refuses({.directory_bytes = 0}, "not where the end record says");
  refuses({.directory_bytes = 0xfffffff0}, "not where the end record says");
  refuses({.directory_at = 0xffffffff}, "not where the end record says");
  refuses({.comment = "x", .comment_bytes = 1}, "does not end with an end record");
  refuses({.comment_bytes = 1}, "does not end with an end record");
  refuses({.zip64 = true, .count64 = 3}, "disagree");
  refuses({.count = 0xffff, .zip64 = true, .count64 = ~uint64_t{0}}, "another number of records");
  refuses({.count = 0xffff, .zip64 = true, .count64 = uint64_t{1} << 40}, "another number of records");
  refuses({.directory_at = 0xffffffff, .zip64 = true, .directory_at64 = ~uint64_t{0}}, "not where the end record says");
  refuses({.directory_at = 0xffffffff, .zip64 = true, .directory_at64 = uint64_t{1} << 62}, "not where");
  refuses({.directory_bytes = 0xffffffff, .zip64 = true, .directory_bytes64 = uint64_t{1} << 62}, "not where");
  refuses({.directory_bytes = 0xffffffff, .zip64 = true, .directory_bytes64 = uint64_t{1} << 63}, "not where");
  refuses({.zip64 = true, .end64_at = ~uint64_t{0}}, "lies outside");
  refuses({.zip64 = true, .end64_at = uint64_t{1} << 62}, "lies outside");
  refuses({.zip64 = true, .end64_at = 0}, "no zip64 end record");
}

TEST_CASE("zip: zip64 fields of records") {
  const DcpCheckpoint checkpoint;
  const auto refuses = [&](const std::string& bytes, const std::string& part) {
    checkpoint.RefusesStream(bytes, part);
  };
  using pickled::Little;
  const auto extra = [](const std::string& content) { return Little(1, 2) + Little(content.size(), 2) + content; };
  refuses(With([](Records* r) { (*r)[2].length = 0xffffffff; }), "the directory is broken");
  refuses(With([&](Records* r) { (*r)[2].header_at = 0xffffffff; }), "the directory is broken");
  for (const uint64_t size : {~uint64_t{0}, uint64_t{1} << 63}) {
    refuses(With([&](Records* r) {
              (*r)[2].length = 0xffffffff;
              (*r)[2].extra = extra(Little(size, 8) + Little(size, 8));
            }),
            "the directory is broken");
  }
  refuses(With([&](Records* r) {
            (*r)[2].length = 0xffffffff;
            (*r)[2].extra = extra(Little(uint64_t{1} << 62, 8) + Little(uint64_t{1} << 62, 8));
          }),
          "overlaps what comes after");
  refuses(With([&](Records* r) {
            (*r)[2].header_at = 0xffffffff;
            (*r)[2].extra = extra(Little(~uint64_t{0} >> 1, 8));
          }),
          "overlaps what comes after");
  refuses(With([&](Records* r) {
            (*r)[2].length = 0xffffffff;
            (*r)[2].extra = Little(1, 2) + Little(16, 2);
          }),
          "the directory is broken");
}

TEST_CASE("zip: directories without measure") {
  const DcpCheckpoint checkpoint;
  checkpoint.RefusesStream(With([](Records* r) {
                             for (int i = 0; i < 30'000; ++i)
                               r->push_back({.name = std::to_string(i) + "/x", .content = {}});
                           }),
                           "at most 1048576 are allowed");
}

TEST_CASE("zip: streams that are not an archive, or not all of one") {
  const DcpCheckpoint checkpoint;
  const std::string good = StreamText().Bytes();
  checkpoint.RefusesStream(std::string(), "too short");
  checkpoint.RefusesStream(std::string("x"), "too short");
  checkpoint.RefusesStream(std::string(10'000, '\0'), "does not end with an end record");
  checkpoint.RefusesStream(good.substr(1), "not where the end record says");
  checkpoint.RefusesStream(good + "x", "does not end with an end record");
  checkpoint.RefusesStream("x" + good, "not where the end record says");
  checkpoint.RefusesStream(good + good, "not where the end record says");
  checkpoint.RefusesStream(good.substr(good.size() - 22), "not where the end record says");
}

}  // namespace
}  // namespace reshard::testing
