// A hash by which ranks check that they see the same checkpoint.
#ifndef RESHARD_CHECKPOINT_CATALOG_CATALOG_HASH_H_
#define RESHARD_CHECKPOINT_CATALOG_CATALOG_HASH_H_

#include "checkpoint/hash/hash.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::catalog {

// Of everything that the catalog says, except where it lies: names, dtypes, shapes, chunks, byte items, and the names
// and sizes of files.
hash::ContentHash HashOfCatalog(const Catalog& catalog);

}  // namespace reshard::catalog

#endif  // RESHARD_CHECKPOINT_CATALOG_CATALOG_HASH_H_
