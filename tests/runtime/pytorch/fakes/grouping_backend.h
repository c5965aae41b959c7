// A backend that takes messages in groups only, as ProcessGroupNCCL does, and hands them to another one. Like that one
// it keeps the open group in plain members, so that nobody else may use it meanwhile: it says so where somebody does.
#ifndef RESHARD_TESTS_RUNTIME_PYTORCH_FAKES_GROUPING_BACKEND_H_
#define RESHARD_TESTS_RUNTIME_PYTORCH_FAKES_GROUPING_BACKEND_H_

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace reshard {

class GroupingBackend final : public c10d::Backend {
 public:
  using Made = c10::intrusive_ptr<c10d::Work>;

  explicit GroupingBackend(c10::intrusive_ptr<c10d::Backend> below)
      : Backend(below->getRank(), below->getSize()), below_(std::move(below)) {
    setGroupUid(below_->getGroupUid());  // a group asks any of its backends for its name
  }

  const std::string getBackendName() const override { return "grouping"; }
  bool supportsCoalescing() const override { return true; }

  void startCoalescing() override {
    TORCH_CHECK(!open_, "a group within a group");
    open_ = true;
    thread_ = std::this_thread::get_id();
  }
  // Null when nothing was asked for, like ProcessGroupNCCL.
  Made endCoalescing() override {
    TORCH_CHECK(open_, "the end of a group that was not begun");
    CheckThread();
    open_ = false;
    const std::vector<std::function<Made()>> calls = std::exchange(calls_, {});
    if (calls.empty()) return nullptr;
    auto all = c10::make_intrusive<All>();
    for (const auto& call : calls) all->works.push_back(call());
    if (!loses_work_) return all;
    all->wait(std::chrono::milliseconds(10'000));  // nothing may arrive in memory that is given up
    return nullptr;
  }
  // From now on groups have no work objects, as if all in them had run on the current stream.
  void LoseWork() { loses_work_ = true; }

  Made send(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    TORCH_CHECK(open_, "a message outside of a group");
    return Ask([this, tensors, peer, tag]() mutable { return below_->send(tensors, peer, tag); });
  }
  Made recv(std::vector<at::Tensor>& tensors, int peer, int tag) override {
    TORCH_CHECK(open_, "a message outside of a group");
    return Ask([this, tensors, peer, tag]() mutable { return below_->recv(tensors, peer, tag); });
  }
  Made _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override {
    TORCH_CHECK(options.asyncOp == open_, "alone it runs on the current stream, in a group on the backend's");
    return Ask([this, out, in]() mutable { return below_->_allgather_base(out, in); });
  }
  Made alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& to, std::vector<int64_t>& from,
                     const c10d::AllToAllOptions& options) override {
    TORCH_CHECK(options.asyncOp == open_, "alone it runs on the current stream, in a group on the backend's");
    return Ask([this, out, in, to, from]() mutable { return below_->alltoall_base(out, in, to, from); });
  }
  Made _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override {
    TORCH_CHECK(options.asyncOp == open_, "alone it runs on the current stream, in a group on the backend's");
    return Ask([this, out, in, options]() mutable { return below_->_reduce_scatter_base(out, in, options); });
  }
  Made allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(options.asyncOp == open_, "alone it runs on the current stream, in a group on the backend's");
    return Ask([this, tensors, options]() mutable { return below_->allreduce(tensors, options); });
  }

 private:
  struct All final : c10d::Work {
    std::vector<Made> works;
    bool wait(std::chrono::milliseconds timeout) override {
      for (const Made& work : works) {
        if (!work->wait(timeout)) return false;
      }
      return true;
    }
  };

  void CheckThread() const {
    TORCH_CHECK(std::this_thread::get_id() == thread_, "a call from another thread than that of the open group");
  }

  Made Ask(std::function<Made()> call) {
    if (!open_) return call();
    CheckThread();
    calls_.push_back(std::move(call));
    return nullptr;
  }

  const c10::intrusive_ptr<c10d::Backend> below_;
  bool open_ = false;
  std::thread::id thread_;  // of the open group
  bool loses_work_ = false;
  std::vector<std::function<Made()>> calls_;
};

}  // namespace reshard

#endif  // RESHARD_TESTS_RUNTIME_PYTORCH_FAKES_GROUPING_BACKEND_H_
