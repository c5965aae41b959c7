// The bytes of an archive of stored (uncompressed) records around at most one large record, written separately: what
// torch.save writes, with every position known before the first byte of the large record.
//
//   StoredArchive archive("archive");
//   archive.Add("data.pkl", pickle);
//   archive.AddLarge("data/0", payload_bytes);             // last
//   ... write the payload at archive.large_at(), taking its CRC ...
//   write archive.Before(crc) at 0 and archive.After(crc) at large_at() + payload_bytes
#ifndef RESHARD_CHECKPOINT_FORMATS_ZIP_STORED_ARCHIVE_H_
#define RESHARD_CHECKPOINT_FORMATS_ZIP_STORED_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reshard::zip {

class StoredArchive {
 public:
  // Payloads start at multiples of this from the start of the archive, as PyTorch's do.
  static constexpr int64_t kAlignment = 64;
  // The large record must stay below: longer ones need fields that few readers have been tried with.
  static constexpr int64_t kLargest = (int64_t{1} << 32) - (int64_t{1} << 20);

  // Records are named `stem`/name.
  explicit StoredArchive(std::string_view stem) : stem_(stem) {}

  void Add(std::string_view name, std::string_view content);
  // bytes <= kLargest. Nothing is added after it.
  void AddLarge(std::string_view name, int64_t bytes);

  int64_t large_at() const { return records_.back().data_at; }
  // Of the whole archive.
  int64_t bytes() const;

  // The whole archive, where nothing large was added.
  std::string Whole() const { return Before(records_.back().crc) + After(records_.back().crc); }
  // Bytes [0, large_at()) and [large_at() + its bytes, bytes()), for a large record with this CRC-32.
  std::string Before(uint32_t crc) const;
  std::string After(uint32_t crc) const;

 private:
  struct Record {
    std::string name;
    std::string content;
    int64_t bytes = 0;
    int64_t header_at = 0;
    int64_t data_at = 0;
    uint32_t crc = 0;
  };

  void Place(Record* record);
  uint32_t CrcOf(const Record& record, uint32_t large) const;

  std::string stem_;
  std::vector<Record> records_;
};

}  // namespace reshard::zip

#endif  // RESHARD_CHECKPOINT_FORMATS_ZIP_STORED_ARCHIVE_H_
