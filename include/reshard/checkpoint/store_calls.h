/* A store (reshard/checkpoint/store.h) as a table of C functions, for programs that are not C++ or are built with
 * another compiler: the Python package hands its stores over in one. */
#ifndef RESHARD_CHECKPOINT_STORE_CALLS_H_
#define RESHARD_CHECKPOINT_STORE_CALLS_H_

/* NOLINTBEGIN(modernize-deprecated-headers,readability-identifier-naming): C's. */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of the strings that a call writes, each ending with a 0 and truncated if it is longer. */
enum { RESHARD_STORE_VERSION_BYTES = 256, RESHARD_STORE_ERROR_BYTES = 1024 };

struct reshard_stored_object {
  int64_t bytes;
  char version[RESHARD_STORE_VERSION_BYTES];
};

/* Takes one entry of a list; bytes < 0: a folder. */
typedef void (*reshard_store_entry)(void* taker, const char* name, int64_t bytes, const char* version);

/* Like the functions of Store and ObjectUpload with the same names, called from any thread. All but give_up return 0,
 * or the number of an absl::StatusCode with the message in `error`. URLs end with a 0. */
struct reshard_store_calls {
  int (*find)(const char* url, struct reshard_stored_object* object, char* error);
  /* Store::FindAndRead; `size` is the size of `first` in bytes. */
  int (*find_and_read)(const char* url, char* first, int64_t size, struct reshard_stored_object* object, char* error);
  int (*read)(const char* url, const struct reshard_stored_object* object, int64_t at, char* out, int64_t size,
              char* error);
  int (*list)(const char* url, reshard_store_entry take, void* taker, char* error);
  int (*put)(const char* url, const char* bytes, int64_t size, int create, struct reshard_stored_object* object,
             char* error);
  int (*remove)(const char* url, char* error);
  /* Sets `*upload` to a number for the upload, which is not 0. */
  int (*begin)(const char* url, int64_t bytes, int64_t memory, uint64_t* upload, char* error);
  int (*write)(uint64_t upload, const char* bytes, int64_t size, char* error);
  /* After either of these the number is invalid. */
  int (*finish)(uint64_t upload, struct reshard_stored_object* object, char* error);
  void (*give_up)(uint64_t upload);
};

#ifdef __cplusplus
}
/* NOLINTEND(modernize-deprecated-headers,readability-identifier-naming) */

#include <memory>

namespace reshard {

class Store;

// The store behind a table, which must stay in place as long as the store is used.
std::shared_ptr<Store> MakeStore(const reshard_store_calls& calls);

}  // namespace reshard
#endif

#endif  // RESHARD_CHECKPOINT_STORE_CALLS_H_
