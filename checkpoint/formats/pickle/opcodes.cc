#include "checkpoint/formats/pickle/opcodes.h"

namespace reshard::pickle {

const char* NameOfRefused(uint8_t op) {
  switch (op) {
    case 'L':
      return "LONG";
    case 'F':
      return "FLOAT";
    case 'S':
      return "STRING";
    case 'V':
      return "UNICODE";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 'g':
      return "GET";
    case 'p':
      return "PUT";
    case 'l':
      return "LIST";
    case 'd':
      return "DICT";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return "unknown";
  }
}

}  // namespace reshard::pickle
