// What the files of FakeNccl share. Everything is guarded by the lock of the world.
#ifndef RESHARD_TESTS_FAKES_FAKE_NCCL_STATE_H_
#define RESHARD_TESTS_FAKES_FAKE_NCCL_STATE_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/fake_calls.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/fakes/fake_streams.h"

namespace reshard::testing::fake {

struct Comm;
class GroupWork;

enum class Kind { kSend, kRecv, kAllGather, kReduceScatter, kAllReduce, kAllToAll };
const char* NameOf(Kind kind);
inline bool IsCollective(Kind kind) { return kind != Kind::kSend && kind != Kind::kRecv; }
// 0 for no type.
size_t BytesOf(NcclDataType type);

// What all ranks of a collective must agree on.
struct Terms {
  Kind kind = Kind::kSend;
  size_t count = 0;
  NcclDataType type = 0;
  NcclRedOp op = 0;
  bool operator==(const Terms& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op;
  }
};
std::string Text(const Terms& terms);

struct Operation {
  Terms terms;
  const void* send = nullptr;
  void* receive = nullptr;
  int peer = -1;       // in the communicator
  int64_t number = 0;  // of this kind with this peer; of collectives
  bool started = false;
  bool busy = false;  // bytes are moved, without the lock
  bool done = false;
  bool stalled = false;
  NcclResult fails = kNcclSuccess;

  size_t send_bytes(int ranks) const;
  size_t receive_bytes(int ranks) const;
};

// One collective of all ranks.
struct Meeting {
  std::vector<std::optional<Terms>> terms;
  std::vector<std::vector<unsigned char>> inputs;
  int arrived = 0;
  int left = 0;
};

// All ranks of a CommSplit.
struct Split {
  struct Member {
    int color = 0;
    int key = 0;
    bool blocking = true;
    Comm* made = nullptr;
  };
  std::map<int, Member> members;
  bool complete = false;
};

// One communicator, of all its ranks.
struct Clique {
  int number = 0;
  int ranks = 0;
  std::vector<Comm*> members;  // null: has not arrived
  int arrived = 0;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings;
  std::map<int64_t, std::shared_ptr<Split>> splits;
};

// One rank's side of a communicator. Stays after its end, to report later uses.
struct Comm {
  Clique* clique = nullptr;
  int rank = 0;
  Device* device = nullptr;
  bool blocking = true;
  bool given = false;  // somebody has it
  bool finalized = false;
  bool destroyed = false;
  bool aborted = false;
  NcclResult error = kNcclSuccess;
  std::string last_error;

  // InProgress until so many polls are made, and `until` is empty or true.
  int polls = 0;
  std::function<bool()> until;
  std::function<void()> then;

  std::thread::id inside;                               // a call of this thread
  std::thread::id group_of;                             // has an open group with operations of this
  std::set<std::pair<bool, int>> connected;             // (collective, peer)
  std::map<std::pair<Kind, int>, int64_t> issued_with;  // how many, by kind and peer; collectives as (kAllReduce, -1)
  std::map<std::pair<Kind, int>, std::map<int64_t, std::pair<GroupWork*, Operation*>>> pending;
  std::deque<std::shared_ptr<GroupWork>> groups;  // under way, in the order of issue
  int64_t splits = 0;

  bool gone() const { return destroyed || aborted; }
  bool in_progress() const { return polls > 0 || until != nullptr; }
  std::string Text() const;
  void Fail(NcclResult result, const std::string& why);
};

// What one GroupEnd launches of one communicator.
class GroupWork final : public Work, public std::enable_shared_from_this<GroupWork> {
 public:
  GroupWork(Comm* comm, std::vector<Operation> operations, std::vector<Stream*> streams);
  // Takes its place behind the communicator's earlier groups.
  void Issue();

  void Run(Lock& lock, Stream& stream) override;
  bool MayProceed(const Live& live) const override;
  void Stuck(const std::string& all) override;
  std::string Text() const override;

  bool active() const { return active_; }
  // Whether what is enqueued on that stream next begins after this, as streams and events order them.
  bool ComesBefore(const Stream& stream) const;
  // Whether its turn may come.
  bool MayStart(const Live& live) const;

 private:
  void CheckOrder() const;
  void Start();
  bool Step(Lock& lock);
  bool Receive(Lock& lock, Operation& operation);
  bool Meet(Lock& lock, Operation& operation);
  bool HasDone() const;
  void Done(Operation& operation);
  std::string WaitText(const Operation& operation) const;

  Comm* const comm_;
  std::vector<Operation> operations_;
  const std::vector<Stream*> streams_;
  std::vector<int64_t> places_;  // how many works were enqueued before it, one per stream
  size_t reached_ = 0;           // streams that have come to it
  bool active_ = false;
  bool finished_ = false;
  bool told_ = false;
};

struct NcclState {
  FakeNcclOptions options;
  std::unique_ptr<NcclApi> api;
  CallBook book;
  std::map<std::string, Clique*> by_id;
  int64_t ids = 0;
  std::vector<std::unique_ptr<Clique>> cliques;
  std::vector<std::unique_ptr<Comm>> comms;
  std::map<int, std::vector<FakeOperation>> operations;  // by rank
  std::map<int, int64_t> groups;
  std::map<std::pair<int, int64_t>, NcclResult> fail_async;
  std::set<std::pair<int, int64_t>> stalled;
  std::string last_error;
};
NcclState& TheNccl();

// A call on a communicator, with the lock: counted, and refused when it may not be used now. While it lives, a call of
// another thread is an error.
class CommCall {
 public:
  struct Allow {
    bool in_progress = false;
    bool finalized = false;
    bool failed = false;
  };
  CommCall(Lock& lock, const char* function, NcclComm handle, Allow allow);
  ~CommCall();
  NcclResult result() const { return result_; }
  Comm* comm() const { return comm_; }

 private:
  Comm* comm_ = nullptr;
  bool entered_ = false;
  NcclResult result_ = kNcclSuccess;
};

// How many calls are under way, in all threads.
int64_t& CallsInside();

// Complains, keeps the words for GetLastError.
NcclResult WrongUse(NcclResult result, const std::string& what);
// How deep this thread is in groups.
int GroupDepth();
// `out` of `n` contributions, combined in their order.
void Reduce(const std::vector<std::vector<unsigned char>>& inputs, size_t offset, const Terms& terms, void* out);

void FillCommFunctions(NcclApi* api);
void FillOperationFunctions(NcclApi* api, bool all_to_all);

}  // namespace reshard::testing::fake

#endif  // RESHARD_TESTS_FAKES_FAKE_NCCL_STATE_H_
