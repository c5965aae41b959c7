// Records: objects of a remembered class, made by NEWOBJ without arguments, whose state is a dict of a few remembered
// names, with values that are remembered, numbers, or a torch.Size of numbers. A large `.metadata` consists of millions
// of them and little else: the chunks of tensors and the locations of chunks. Here such an object is read in one go and
// stored as its values alone, with the class and the keys in a shape that all objects of the kind share.
//
// Only sequences of opcodes are read that the machine would accept one by one, with the same result: the same values
// under the same memo numbers, the same number of objects, the same depth. Anything else is left to the machine.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_RECORDS_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_RECORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "checkpoint/formats/pickle/heap.h"
#include "checkpoint/formats/pickle/machine.h"

namespace reshard::pickle {

class PickleRecords {
 public:
  // What the limits leave.
  struct Room {
    int64_t objects = 0;
    int64_t remembered = 0;
    uint32_t depth = 0;  // of a value
    int64_t marks = 0;
  };
  struct Record {
    Pickle::Value value = 0;       // 0: none
    const uint8_t* end = nullptr;  // what follows it
    int64_t objects = 0;           // that it is made of, as the machine counts
  };

  // From the begin of a record at least this many bytes must be readable: it bounds all records.
  static constexpr int64_t kMostBytes = 1024;

  // The record at `at`, an opcode BINGET or LONG_BINGET; adds its values to `pickle` and what it remembers to `memo`,
  // which has no gaps. Nothing is changed when there is none: other opcodes, less than kMostBytes up to `end`, no room.
  Record Read(const uint8_t* at, const uint8_t* end, const Room& room, Pickle* pickle, PickleHeap* memo);

 private:
  // One reading.
  class Reader;

  static constexpr size_t kShapes = 8;
  static constexpr size_t kMostFields = 8;

  uint32_t ShapeOf(Pickle::Value name, const Pickle::Value* keys, size_t count, Pickle* pickle);

  struct Shape {
    uint32_t at = 0;  // in the heap
    Pickle::Value name = 0;
    std::array<Pickle::Value, kMostFields> keys = {};  // 0 behind the last
  };
  std::array<Shape, kShapes> shapes_;
  size_t next_shape_ = 0;  // to be forgotten first
};

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_RECORDS_H_
