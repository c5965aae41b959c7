// A layout as the oracle reads it: by its text, so that no code of the library is shared.
#ifndef RESHARD_TESTS_ORACLE_OF_H_
#define RESHARD_TESTS_ORACLE_OF_H_

#include "reshard/layout/text.h"
#include "tests/oracle/holdings.h"

namespace reshard::testing {

inline oracle::Layout OracleLayout(const Layout& layout) {
  return oracle::ParseLayout(ToString(layout), oracle::ParseMesh(ToString(layout.mesh())));
}

inline oracle::Holdings HoldingsOf(const Layout& layout) { return oracle::Holdings(OracleLayout(layout)); }

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_ORACLE_OF_H_
