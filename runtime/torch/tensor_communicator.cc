#include <condition_variable>
#include <deque>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "reshard/torch/c10d_communicator.h"
#include "reshard/torch/redistribute.h"
#include "runtime/torch/tensors.h"

namespace reshard {

// A thread that runs functions one after the other.
class TensorCommunicator::Worker {
 public:
  Worker() : thread_([this] { Serve(); }) {}
  ~Worker() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::future<void> Add(std::function<void()> function) {
    std::packaged_task<void()> task(std::move(function));
    std::future<void> done = task.get_future();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
    return done;
  }

  void WaitUntilIdle() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty() && !busy_; });
  }

 private:
  void Serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;  // what was given is done before stopping
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      task();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

namespace {

// Host memory: what travels is copied by processors and goes through sockets.
RedistributorOptions HostOptions() {
  RedistributorOptions options;
  absl::StatusOr<Topology> cpu = Topology::Preset("cpu");
  if (cpu.ok()) options.plan.topology = *std::move(cpu);
  return options;
}

struct Known {
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<TensorCommunicator> communicator;
};

}  // namespace

TensorCommunicator::TensorCommunicator(Communicator* communicator, RedistributorOptions options)
    : redistributor_(communicator, std::move(options)) {}

TensorCommunicator::TensorCommunicator(std::unique_ptr<Communicator> owned, RedistributorOptions options)
    : owned_(std::move(owned)), redistributor_(owned_.get(), std::move(options)) {}

TensorCommunicator::~TensorCommunicator() = default;

std::shared_ptr<TensorCommunicator> TensorCommunicator::OfGroup(const std::string& name) {
  const c10::intrusive_ptr<c10d::ProcessGroup> group = c10d::resolve_process_group(name);
  // Never destroyed: threads of the process may still be in a call when statics go.
  static std::mutex* const mutex = new std::mutex;
  static auto* const known = new std::map<std::string, Known, std::less<>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = known->find(name);
  if (found != known->end() && found->second.group.lock() == group) return found->second.communicator;
  // Names are used again; what belonged to groups that are gone can go.
  for (auto it = known->begin(); it != known->end();)
    it = it->second.group.expired() ? known->erase(it) : std::next(it);
  absl::StatusOr<std::unique_ptr<C10dCommunicator>> communicator = C10dCommunicator::Create(group);
  if (!communicator.ok()) Throw(communicator.status(), group->getRank());
  std::shared_ptr<TensorCommunicator> made(new TensorCommunicator(*std::move(communicator), HostOptions()));
  known->insert_or_assign(name, Known{c10::weak_intrusive_ptr<c10d::ProcessGroup>(group), made});
  return made;
}

ExecuteResult TensorCommunicator::last_result() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_result_;
}

void TensorCommunicator::SetLastResult(const ExecuteResult& result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_result_ = result;
}

std::string TensorCommunicator::RecentOperationsJson() const {
  const auto* c10d = dynamic_cast<const C10dCommunicator*>(&redistributor_.communicator());
  return c10d == nullptr ? "[]" : c10d->recent_operations().ToJson();
}

void TensorCommunicator::RunInOrder(const std::function<void()>& function) {
  Worker* worker = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    worker = worker_.get();
  }
  if (worker != nullptr) worker->WaitUntilIdle();
  const std::lock_guard<std::mutex> lock(order_);
  function();
}

std::future<void> TensorCommunicator::RunLater(std::function<void()> function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (worker_ == nullptr) worker_ = std::make_unique<Worker>();
  return worker_->Add([this, function = std::move(function)] {
    const std::lock_guard<std::mutex> order(order_);
    function();
  });
}

}  // namespace reshard
