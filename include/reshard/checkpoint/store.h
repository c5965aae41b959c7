// Object stores and servers, where a path is a URL: what is there is listed, read in ranges, and written as whole
// objects.
//
// https servers are read without a registered store. Every other scheme belongs to a store that the program registers:
// the Python package registers those of obstore and fsspec, and a C++ program may have its own:
//
//   class Shelf : public reshard::Store { ... };
//   reshard::RegisterStore("shelf", std::make_shared<Shelf>());
//   reshard::Convert("shelf://books/step-1000", "exported", ...);
#ifndef RESHARD_CHECKPOINT_STORE_H_
#define RESHARD_CHECKPOINT_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace reshard {

// What is at one URL.
struct StoredObject {
  int64_t bytes = 0;
  // Changes with the content: an ETag, a version, or the time of the last write. May be empty if the store has nothing
  // of the kind; a change to the object while it is read then goes unnoticed.
  std::string version;
};

// An object that is being written, from beginning to end, by one thread at a time. Destroying it before Finish leaves
// nothing visible.
class ObjectUpload {
 public:
  virtual ~ObjectUpload() = default;
  // The next bytes. May return before they are sent; what goes wrong then is reported later.
  virtual absl::Status Write(std::string_view bytes) = 0;
  // Makes the object appear, whole, in place of the one that was there.
  virtual absl::StatusOr<StoredObject> Finish() = 0;
};

// URLs are as the user wrote them, without a "/" at the end. Called from any number of threads. Each call retries what
// may have failed because of the network, and returns within a time limit of its own.
//
// Errors: NotFound: there is nothing at the URL. PermissionDenied: credentials. AlreadyExists, FailedPrecondition: see
// below. Unimplemented: the store cannot do that. Unavailable: every other error that a retry may fix. The message says
// what happened, without secrets.
class Store {
 public:
  struct Entry {
    std::string name;  // below the URL that was listed, without "/"
    bool is_folder = false;
    StoredObject object;  // unless it is a folder
  };

  virtual ~Store() = default;

  // What is at the URL; NotFound also for a folder.
  virtual absl::StatusOr<StoredObject> Find(const std::string& url) = 0;
  // The same, and reads the first bytes of the object: as many as there are and fit into `first`.
  virtual absl::StatusOr<StoredObject> FindAndRead(const std::string& url, absl::Span<char> first);
  // Fills `out` from byte `at` on; the object has that many bytes. FailedPrecondition: the object has changed.
  virtual absl::Status Read(const std::string& url, const StoredObject& object, int64_t at, absl::Span<char> out) = 0;
  // Objects and folders right below the URL, by name. NotFound: there are none. Unimplemented: the store cannot list.
  virtual absl::StatusOr<std::vector<Entry>> List(const std::string& url) = 0;

  // The functions below return Unimplemented unless the store can also be written.

  // Writes the object, which appears whole. AlreadyExists: `create`, and one is there. Unimplemented: `create`, and the
  // store cannot tell.
  virtual absl::StatusOr<StoredObject> Put(const std::string& url, std::string_view bytes, bool create);
  // Begins an object of `bytes` bytes. The upload holds about `memory` bytes besides what its caller has: the more, the
  // more requests are in flight.
  virtual absl::StatusOr<std::unique_ptr<ObjectUpload>> Begin(const std::string& url, int64_t bytes, int64_t memory);
  // OK where there is nothing.
  virtual absl::Status Delete(const std::string& url);
};

// From now on URLs that begin with "SCHEME://" belong to this store, in place of any other; an empty scheme means all
// that have no store of their own. A null store undoes the registration. Do not register the schemes https and hf.
void RegisterStore(std::string_view scheme, std::shared_ptr<Store> store);

// "s3" of "s3://bucket/key", in lower case: the scheme of a URL that needs a registered store. Empty for paths, and for
// URLs that the library reads by itself.
std::string StoreSchemeOf(std::string_view path);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_STORE_H_
