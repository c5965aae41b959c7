// Whether two readers see the same checkpoint.
#ifndef RESHARD_CHECKPOINT_JOB_CATALOG_HASH_H_
#define RESHARD_CHECKPOINT_JOB_CATALOG_HASH_H_

#include "checkpoint/job/hash.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// Of everything that the catalog says but for where it lies: names, dtypes, shapes, chunks, byte items, and the names
// and sizes of files.
ContentHash HashOfCatalog(const Catalog& catalog);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_JOB_CATALOG_HASH_H_
