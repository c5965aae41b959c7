// The C++ interface over ranks that are threads: values, destinations of the caller's, handles, gradients, errors.
#include "reshard/torch/redistribute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <vector>

#include "reshard/layout/text.h"
#include "reshard/runtime/local_world.h"
#include "tests/catch.h"

namespace reshard {
namespace {

Layout LayoutOf(const std::string& mesh, const std::string& layout) {
  return ParseLayout(layout, ParseMesh(mesh).value()).value();
}

// Runs body on the ranks of a world of four; what a rank throws fails the test.
void OnFour(const std::function<void(TensorCommunicator&, int64_t)>& body) {
  LocalWorld world(4, {absl::Seconds(60)});
  const absl::Status status = world.Run([&](Communicator& comm) -> absl::Status {
    TensorCommunicator tensors(&comm);
    body(tensors, comm.rank());
    return absl::OkStatus();
  });
  INFO(status);
  CHECK(status.ok());
}

void Require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

at::Tensor Rows(const at::Tensor& whole, int64_t rank) { return whole.chunk(4, 0)[rank]; }
at::Tensor Columns(const at::Tensor& whole, int64_t rank) { return whole.chunk(4, 1)[rank]; }

const Layout& RowLayout() {
  static const Layout* const layout = new Layout(LayoutOf("{X:4}", "[<X>8, 12]"));
  return *layout;
}
const Layout& ColumnLayout() {
  static const Layout* const layout = new Layout(LayoutOf("{X:4}", "[8, <X>12]"));
  return *layout;
}

TEST_CASE("tensors of any strides go in, fresh ones come out") {
  OnFour([](TensorCommunicator& group, int64_t rank) {
    const at::Tensor whole = at::arange(96, at::kFloat).reshape({8, 12});
    const at::Tensor strided = Columns(whole.t().contiguous(), rank).t();  // rows of `whole`, stored by columns
    Require(!strided.is_contiguous(), "a test of strided input");
    Require(Columns(whole.t(), rank).t().equal(Rows(whole, rank)), "the test's own arithmetic");
    const at::Tensor out = Redistribute(strided, RowLayout(), ColumnLayout(), group);
    Require(out.equal(Columns(whole, rank)) && out.is_contiguous(), "columns");
    const at::Tensor same = Redistribute(strided, RowLayout(), RowLayout(), group);
    Require(same.equal(strided) && same.data_ptr() != strided.data_ptr(), "a fresh copy where nothing moves");
    Require(group.last_result().moved.written == 96, "bytes written");  // 24 elements of 4 bytes
  });
}

TEST_CASE("the caller's destination is written, with its strides") {
  OnFour([](TensorCommunicator& group, int64_t rank) {
    const at::Tensor whole = at::arange(96, at::kDouble).reshape({8, 12});
    const at::Tensor memory = at::full({3, 16}, -1.0, at::kDouble);
    const at::Tensor out = memory.narrow(1, 0, 8).t();
    const at::Tensor result = Redistribute(Rows(whole, rank), RowLayout(), ColumnLayout(), group, out);
    Require(result.is_same(out) && out.equal(Columns(whole, rank)), "columns");
    Require(memory.narrow(1, 8, 8).eq(-1).all().item<bool>(), "memory beside the destination");
  });
}

TEST_CASE("many tensors, at once or later") {
  OnFour([](TensorCommunicator& group, int64_t rank) {
    const at::Tensor whole = at::arange(96, at::kInt).reshape({8, 12});
    const std::vector<at::Tensor> locals = {Rows(whole, rank), Columns(whole, rank), Rows(whole * 2, rank)};
    const std::vector<Layout> from = {RowLayout(), ColumnLayout(), RowLayout()};
    const std::vector<Layout> to = {ColumnLayout(), RowLayout(), LayoutOf("{X:4}", "[8, 12]")};
    const auto check = [&](const std::vector<at::Tensor>& results) {
      Require(
          results[0].equal(Columns(whole, rank)) && results[1].equal(Rows(whole, rank)) && results[2].equal(whole * 2),
          "the batch");
    };
    check(RedistributeBatch(locals, from, to, group));
    RedistributeHandle first = RedistributeAsync(locals, from, to, group);
    RedistributeHandle second = RedistributeAsync(locals, from, to, group);
    // A call that does not wait comes after those that were begun before it.
    Require(Redistribute(locals[0], from[0], to[0], group).equal(Columns(whole, rank)), "in order");
    Require(first.Done() && second.Done(), "done");
    check(second.Wait());
    check(first.Wait());
  });
}

TEST_CASE("tensors between several meshes share a batch, and its limit on memory") {
  OnFour([](TensorCommunicator& group, int64_t rank) {
    const at::Tensor whole = at::arange(96, at::kFloat).reshape({8, 12});
    const Layout pair = LayoutOf("{Y:2}@1", "[<Y>8, 12]");
    const auto half = [&](int64_t of) {
      return of == 1 || of == 2 ? whole.chunk(2, 0)[of - 1] : at::empty({0, 0}, at::kFloat);
    };
    at::Tensor rows = Rows(whole, rank).clone().requires_grad_(true);
    const std::vector<at::Tensor> locals = {rows, half(rank), Rows(whole, rank)};
    const std::vector<Layout> from = {RowLayout(), pair, RowLayout()};
    const std::vector<Layout> to = {pair, ColumnLayout(), ColumnLayout()};
    for (const std::optional<int64_t> limit : {std::optional<int64_t>(), std::optional<int64_t>(1024)}) {
      const std::vector<at::Tensor> results = RedistributeBatch(locals, from, to, group, limit);
      Require(results[0].numel() == half(rank).numel() && results[0].equal(half(rank).reshape(results[0].sizes())) &&
                  results[1].equal(Columns(whole, rank)) && results[2].equal(Columns(whole, rank)),
              "the batch");
      const at::Tensor back = ::torch::autograd::grad({results[0]}, {rows}, {results[0].detach() * 2})[0];
      Require(back.equal(Rows(whole, rank) * 2), "the gradient");
    }
    bool refused = false;
    try {
      RedistributeBatch(locals, from, to, group, 10);
    } catch (const c10::OutOfMemoryError&) {
      refused = true;
    }
    Require(refused, "a limit that no tensor keeps to");
    const std::vector<at::Tensor> sources = {half(rank), Rows(whole, rank)};
    const std::vector<at::Tensor> detached =
        RedistributeAsync(sources, {pair, RowLayout()}, {ColumnLayout(), pair}, group, 1024).Wait();
    Require(detached[0].equal(Columns(whole, rank)), "later");
  });
}

TEST_CASE("gradients come back the way the values went") {
  OnFour([](TensorCommunicator& group, int64_t rank) {
    const at::Tensor whole = at::arange(96, at::kDouble).reshape({8, 12});
    const at::Tensor weights = at::arange(96, at::kDouble).reshape({8, 12}).mul(0.5);
    at::Tensor local = Rows(whole, rank).clone().requires_grad_(true);
    const at::Tensor out = Redistribute(local, RowLayout(), ColumnLayout(), group);
    const at::Tensor weight = Columns(weights, rank).clone().requires_grad_(true);
    const auto gradient = ::torch::autograd::grad({(out * weight).sum()}, {local}, {}, true, true)[0];
    Require(gradient.equal(Rows(weights, rank)), "the gradient");
    // The gradient of the gradient, with respect to what it was given: the forward way again.
    const auto again = ::torch::autograd::grad({(gradient * Rows(whole, rank)).sum()}, {weight})[0];
    Require(again.equal(Columns(whole, rank)), "the second gradient");

    // A contribution to a sum gets the gradient of the sum, to an average a fourth of it.
    for (const char* op : {"sum", "avg"}) {
      at::Tensor part = at::full({8, 12}, static_cast<double>(rank), at::kDouble).requires_grad_(true);
      const Layout partial = LayoutOf("{X:4}", std::string("[8, 12] ") + op + "<X>");
      const at::Tensor rows = Redistribute(part, partial, RowLayout(), group);
      Require(rows.eq(std::string(op) == "sum" ? 6.0 : 1.5).all().item<bool>(), "the sum");
      const auto back = ::torch::autograd::grad({(rows * Rows(weights, rank)).sum()}, {part})[0];
      Require(back.allclose(std::string(op) == "sum" ? weights : weights / 4), "the gradient of a contribution");
    }
  });
}

TEST_CASE("an error of one rank is thrown on all, and they go on") {
  OnFour([](TensorCommunicator& group, int64_t rank) {
    const at::Tensor whole = at::arange(96, at::kFloat).reshape({8, 12});
    std::string message;
    try {
      Redistribute(rank == 2 ? whole : Rows(whole, rank), RowLayout(), ColumnLayout(), group);
    } catch (const c10::ValueError& error) {
      Require(rank == 2, "only its own rank has a ValueError");
      message = error.what_without_backtrace();
    } catch (const c10::DistBackendError& error) {
      message = error.what_without_backtrace();
    }
    Require(message.find("rank 2") != std::string::npos && message.find("[8, 12]") != std::string::npos, "the message");
    Require(Redistribute(Rows(whole, rank), RowLayout(), ColumnLayout(), group).equal(Columns(whole, rank)), "later");
  });
}

}  // namespace
}  // namespace reshard
