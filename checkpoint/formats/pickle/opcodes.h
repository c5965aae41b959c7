// The opcodes of the pickle protocols 0 to 5, by Python's names.
#ifndef RESHARD_CHECKPOINT_FORMATS_PICKLE_OPCODES_H_
#define RESHARD_CHECKPOINT_FORMATS_PICKLE_OPCODES_H_

#include <cstdint>

namespace reshard::pickle {

enum class PickleOp : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinString = 'T',
  kShortBinString = 'U',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kNewObj = 0x81,
  kNewObjEx = 0x92,
  kBuild = 'b',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPersId = 'Q',
  kProto = 0x80,
  kFrame = 0x95,
  kByteArray8 = 0x96,
  kInt = 'I',
  kInst = 'i',
  kObj = 'o',
};

// "INST": Python's name of an opcode that the machine does not run; "unknown" for any other byte.
const char* NameOfRefused(uint8_t op);

}  // namespace reshard::pickle

#endif  // RESHARD_CHECKPOINT_FORMATS_PICKLE_OPCODES_H_
