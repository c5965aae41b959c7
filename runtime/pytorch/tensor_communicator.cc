#include <unistd.h>

#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>
#include <vector>

#include "reshard/torch/c10d_communicator.h"
#include "reshard/torch/redistribute.h"
#include "reshard/torch/topology.h"
#include "runtime/groups/why_not.h"
#include "runtime/pytorch/cuda_transports.h"
#include "runtime/pytorch/tensors.h"
#include "runtime/pytorch/torch_stream.h"
#include "status/macros.h"

namespace reshard {

// A thread that runs functions one after the other.
class TensorCommunicator::Worker {
 public:
  Worker() : thread_([this] { Serve(); }) {}
  ~Worker() {
    {
      const status::MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.Announce();
    thread_.join();
  }

  std::future<void> Add(std::function<void()> function) {
    std::packaged_task<void()> task(std::move(function));
    std::future<void> done = task.get_future();
    {
      const status::MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.Announce();
    return done;
  }

  void WaitUntilIdle() {
    const status::MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return tasks_.empty() && !busy_; });
  }

 private:
  void Serve() {
    for (;;) {
      std::packaged_task<void()> task;
      {
        const status::MutexLock lock(mutex_);
        changed_.Wait(mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || !tasks_.empty(); });
        if (tasks_.empty()) return;  // all tasks are done before it stops
        task = std::move(tasks_.front());
        tasks_.pop_front();
        busy_ = true;
      }
      task();
      {
        const status::MutexLock lock(mutex_);
        busy_ = false;
      }
      changed_.Announce();
    }
  }

  status::Mutex mutex_;
  status::Changes changed_;
  std::deque<std::packaged_task<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

namespace {

// Host memory: processors copy the data, and sockets carry it.
RedistributorOptions HostOptions() {
  RedistributorOptions options;
  absl::StatusOr<Topology> cpu = Topology::Preset("cpu");
  if (cpu.ok()) options.plan.topology = *std::move(cpu);
  return options;
}

at::Device DeviceOf(const Communicator& communicator) {
  const std::optional<int> gpu = communicator.gpu();
  return gpu ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*gpu)) : at::Device(at::kCPU);
}

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// The communicators of this process's groups. Never destroyed: threads of the process may still be in a call when
// statics go.
class Registry {
 public:
  static Registry& Get() {
    static Registry* const registry = new Registry;
    return *registry;
  }

  // Held while a communicator is made, so that only one is made.
  status::Mutex making;

  std::shared_ptr<TensorCommunicator> Find(const std::string& name, const Group& group, at::Device device) {
    const status::MutexLock lock(mutex_);
    const auto found = known_.find({name, device.str()});
    return found != known_.end() && found->second.IsOf(group) ? found->second.communicator : nullptr;
  }

  // How many of the group's communicators are for GPUs, and one of these.
  std::pair<int64_t, std::shared_ptr<TensorCommunicator>> OnGpus(const Group& group) {
    const status::MutexLock lock(mutex_);
    std::pair<int64_t, std::shared_ptr<TensorCommunicator>> found;
    for (const auto& [key, known] : known_) {
      if (!known.IsOf(group) || !known.communicator->device().is_cuda()) continue;
      ++found.first;
      found.second = known.communicator;
    }
    return found;
  }

  void Add(const std::string& name, const Group& group, const std::shared_ptr<TensorCommunicator>& communicator) {
    const status::MutexLock lock(mutex_);
    known_.insert_or_assign({name, communicator->device().str()},
                            Known{c10::weak_intrusive_ptr<c10d::ProcessGroup>(group), communicator, getpid()});
  }

  // Removes and returns the communicators of the group of that name (nullopt: of all groups), and those whose groups
  // are gone. The caller closes them: that waits for threads, and no lock may be held meanwhile.
  std::vector<std::shared_ptr<TensorCommunicator>> Take(const std::optional<std::string>& name) {
    return TakeThose(
        [&](const std::string& of, const Known& known) { return !name || of == *name || known.group.expired(); });
  }
  // Only those whose groups are gone, or whose name a different group has by now.
  std::vector<std::shared_ptr<TensorCommunicator>> TakeGone(const std::string& name, const Group& group) {
    return TakeThose([&](const std::string& of, const Known& known) {
      return known.group.expired() || (of == name && !known.IsOf(group));
    });
  }

 private:
  struct Known {
    // Takes no reference, which might be the last one when it is dropped: the group would then wait for its threads
    // while we hold a lock. While the other group and the weak reference exist, no third group can have this address.
    bool IsOf(const Group& other) const { return group._unsafe_get_target() == other.get(); }

    c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
    std::shared_ptr<TensorCommunicator> communicator;
    pid_t process;
  };

  template <typename F>
  std::vector<std::shared_ptr<TensorCommunicator>> TakeThose(const F& condition) {
    const status::MutexLock lock(mutex_);
    std::vector<std::shared_ptr<TensorCommunicator>> taken;
    for (auto it = known_.begin(); it != known_.end();) {
      if (!condition(it->first.first, it->second)) {
        ++it;
        continue;
      }
      if (it->second.process == getpid()) {
        taken.push_back(std::move(it->second.communicator));
      } else {
        // A forked child's copy, without the threads that its destructor would wait for: leaked.
        static_cast<void>(new std::shared_ptr<TensorCommunicator>(std::move(it->second.communicator)));
      }
      it = known_.erase(it);
    }
    return taken;
  }

  status::Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Known> known_ ABSL_GUARDED_BY(mutex_);  // by name and device
};

// The global ranks of a group's ranks. Groups do not tell them, but PyTorch's backends do. A group whose backend does
// not, and the default group, which lists none, count as all ranks of the job.
std::vector<int64_t> GlobalRanks(const Group& group) {
  std::vector<int64_t> ranks;
  static_cast<void>(groups::WhyNot([&] {
    for (const uint64_t rank : group->getDefaultBackend()->getBackendOptions()->global_ranks_in_group) {
      ranks.push_back(static_cast<int64_t>(rank));
    }
  }));
  for (int64_t rank = 0; ranks.size() < static_cast<size_t>(group->getSize()); ++rank) ranks.push_back(rank);
  return ranks;
}

bool HasHostBackend(const Group& group) {
  return groups::WhyNot([&] { group->getBackend(c10::DeviceType::CPU); }).empty();
}

}  // namespace

TensorCommunicator::TensorCommunicator(Communicator* communicator, RedistributorOptions options)
    : device_(DeviceOf(*communicator)), redistributor_(communicator, std::move(options)) {}

TensorCommunicator::TensorCommunicator(std::unique_ptr<Communicator> owned, RedistributorOptions options,
                                       at::Device device, std::shared_ptr<void> kept)
    : kept_(std::move(kept)),
      owned_(std::move(owned)),
      device_(device),
      redistributor_(owned_.get(), std::move(options)),
      own_topology_(redistributor_.options().plan.topology) {}

TensorCommunicator::~TensorCommunicator() = default;

std::shared_ptr<TensorCommunicator> TensorCommunicator::OfGroup(const std::string& name, at::Device device) {
  const Group group = c10d::resolve_process_group(name);
  Registry& registry = Registry::Get();
  std::shared_ptr<TensorCommunicator> made = registry.Find(name, group, device);
  if (made != nullptr) return made;
  // In case nothing called Forget.
  for (const std::shared_ptr<TensorCommunicator>& gone : registry.TakeGone(name, group)) gone->Close();
  if (device.is_cpu()) {
    const status::MutexLock lock(registry.making);
    if ((made = registry.Find(name, group, device)) != nullptr) return made;
    absl::StatusOr<std::unique_ptr<C10dCommunicator>> communicator = C10dCommunicator::Create(group);
    if (!communicator.ok()) pytorch::Throw(communicator.status(), group->getRank());
    made.reset(new TensorCommunicator(*std::move(communicator), HostOptions(), device, nullptr));
    made->global_ranks_ = GlobalRanks(group);
    registry.Add(name, group, made);
    return made;
  }
  if (!device.is_cuda()) {
    const std::string message = "tensors on " + device.str() + "; only host memory and GPUs (cuda) are known";
    pytorch::Throw(absl::UnimplementedError(message), group->getRank());
  }
  const std::shared_ptr<TensorCommunicator> host = HasHostBackend(group) ? OfGroup(name) : nullptr;
  absl::Status status;
  {
    const status::MutexLock lock(registry.making);
    if ((made = registry.Find(name, group, device)) != nullptr) return made;
    absl::StatusOr<pytorch::CudaCommunicator> parts =
        pytorch::MakeCudaCommunicator(group, device, host, registry.OnGpus(group).first);
    status = parts.status();
    if (parts.ok()) {
      made.reset(new TensorCommunicator(std::move(parts->communicator), {}, device, std::move(parts->kept)));
      made->global_ranks_ = GlobalRanks(group);
      registry.Add(name, group, made);
      return made;
    }
  }
  // The other ranks may have got further, and wait for this one.
  if (host != nullptr && DefaultAgreement() == Agreement::kEveryCall) {
    host->RunInOrder([&] { status.Update(host->communicator().Agree(status, Signature())); });
  }
  pytorch::Throw(status, group->getRank());
}

std::shared_ptr<TensorCommunicator> TensorCommunicator::InUseOf(const std::string& name) {
  const std::shared_ptr<TensorCommunicator> on_gpus = Registry::Get().OnGpus(c10d::resolve_process_group(name)).second;
  return on_gpus != nullptr ? on_gpus : OfGroup(name);
}

void TensorCommunicator::Forget(const std::optional<std::string>& name) {
  for (const std::shared_ptr<TensorCommunicator>& gone : Registry::Get().Take(name)) gone->Close();
}

void TensorCommunicator::Close() {
  std::shared_ptr<Worker> worker;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    worker = std::move(worker_);
  }
  if (worker != nullptr) worker->WaitUntilIdle();
  worker = nullptr;  // its thread ends here, or with another call that waits for it
  communicator().Close();
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
  const RecentOperations* const recent = communicator().recent_operations();
  return recent == nullptr ? "[]" : recent->ToJson();
}

absl::Status TensorCommunicator::FollowTopology() {
  if (!global_ranks_) return absl::OkStatus();
  const int64_t version = TopologyVersion();
  if (version == topology_version_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<Topology> told, ConfiguredTopology());
  redistributor_.SetTopology(told ? OnRanks(*told, *global_ranks_) : own_topology_);
  topology_version_ = version;
  return absl::OkStatus();
}

void TensorCommunicator::UseCurrentStream() {
  if (device_.is_cuda()) communicator().UseStream(pytorch::CurrentStreamOf(device_));
}

void TensorCommunicator::RunInOrder(const std::function<void()>& function) {
  std::shared_ptr<Worker> worker;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    worker = worker_;
  }
  if (worker != nullptr) worker->WaitUntilIdle();
  const std::lock_guard<std::mutex> lock(order_);
  UseCurrentStream();
  function();
}

std::future<void> TensorCommunicator::RunLater(std::function<void()> function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (worker_ == nullptr) worker_ = std::make_shared<Worker>();
  return worker_->Add([this, function = std::move(function)] {
    const std::lock_guard<std::mutex> order(order_);
    function();
  });
}

}  // namespace reshard
