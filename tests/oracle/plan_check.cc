#include "tests/oracle/plan_check.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

namespace oracle {
namespace {

bool Reduces(const std::string& op) { return op == "ReduceScatter" || op == "AllReduce"; }

// Elements, of one device in one step.
struct Load {
  int64_t recv = 0;
  int64_t send = 0;
  int64_t staging = 0;
  std::set<int64_t> from;  // devices
  std::set<int64_t> to;
};

class Checker {
 public:
  explicit Checker(const PlanFacts& plan) : plan_(plan) {}

  std::vector<std::string> Run() {
    try {
      Parse();
      CheckChain();
      Start();
      for (size_t s = 0; s < plan_.steps.size(); ++s) CheckStep(s);
      CheckEnd();
      CheckTotals();
      CheckBounds();
    } catch (const std::runtime_error& error) {
      Find(error.what());
    }
    return findings_;
  }

 private:
  void Find(const std::string& text) {
    if (findings_.size() < 20) findings_.push_back(text);
  }
  void FindIn(size_t s, const std::string& text) {
    Find("step " + std::to_string(s) + " (" + plan_.steps[s].op + " " + plan_.steps[s].from + " -> " +
         plan_.steps[s].to + "): " + text);
  }
  void Same(const std::string& what, int64_t printed, int64_t counted) {
    if (printed != counted) Find(what + " is " + std::to_string(printed) + ", counted " + std::to_string(counted));
  }
  void SameIn(size_t s, const std::string& what, int64_t printed, int64_t counted) {
    if (printed != counted) FindIn(s, what + " is " + std::to_string(printed) + ", counted " + std::to_string(counted));
  }

  const Holdings* Read(const std::string& mesh, const std::string& layout) {
    auto& slot = known_[mesh + " " + layout];
    if (!slot) slot = std::make_unique<Holdings>(ParseLayout(layout, ParseMesh(mesh)));
    return slot.get();
  }

  void Parse() {
    source_ = Read(plan_.mesh, plan_.source);
    target_ = Read(plan_.target_mesh, plan_.target);
    contributions_ = std::make_unique<Contributions>(source_->layout);
    int64_t world = 0;
    for (const int64_t id : source_->layout.mesh.ids) world = std::max(world, id + 1);
    for (const int64_t id : target_->layout.mesh.ids) world = std::max(world, id + 1);
    Same("world", plan_.world, world);
    for (const MovedBox& piece : plan_.pieces) {
      if (piece.step < 0 || piece.step >= static_cast<int64_t>(plan_.steps.size()))
        throw std::runtime_error("a piece of no step");
    }
  }

  void CheckChain() {
    if (plan_.steps.empty()) {
      if (!Equivalent(source_->layout, target_->layout)) Find("no steps, but the ends differ");
      return;
    }
    if (Equivalent(source_->layout, target_->layout)) Find("equivalent ends need no steps");
    if (plan_.steps.front().from != plan_.source || plan_.steps.front().from_mesh != plan_.mesh)
      Find("does not start at the source");
    if (plan_.steps.back().to != plan_.target || plan_.steps.back().to_mesh != plan_.target_mesh)
      Find("does not end at the target");
    for (size_t s = 1; s < plan_.steps.size(); ++s) {
      if (plan_.steps[s].from != plan_.steps[s - 1].to || plan_.steps[s].from_mesh != plan_.steps[s - 1].to_mesh) {
        FindIn(s, "does not start where the step before ends");
      }
    }
  }

  // Every device holds its own contribution to the elements of its source fragment.
  void Start() {
    const Mesh& mesh = source_->layout.mesh;
    for (size_t p = 0; p < mesh.ids.size(); ++p) {
      std::vector<uint64_t>& mine = values_[mesh.ids[p]];
      mine.assign(static_cast<size_t>(source_->elements), 0);
      for (int64_t e = 0; e < source_->elements; ++e) {
        if (source_->sets[p].Contains(e)) mine[e] = contributions_->Own(static_cast<int64_t>(p));
      }
    }
  }

  void CheckStep(size_t s) {
    const StepFacts& step = plan_.steps[s];
    Movement m;
    m.from = Read(step.from_mesh, step.from);
    m.to = Read(step.to_mesh, step.to);
    const Mesh& from_mesh = m.from->layout.mesh;
    if (m.from->layout.shape() != source_->layout.shape() || m.to->layout.shape() != source_->layout.shape()) {
      throw std::runtime_error("the shape changes");
    }
    if (plan_.boxes_only && s + 1 < plan_.steps.size()) CheckBox(s, *m.to);
    if (!plan_.ops.empty() && std::find(plan_.ops.begin(), plan_.ops.end(), step.op) == plan_.ops.end())
      FindIn(s, "the op is not allowed");
    for (const std::string& axis : step.axes) m.axes.push_back(ParseRef(axis, from_mesh));
    if (m.crosses() && !m.axes.empty()) FindIn(s, "axes across meshes");

    std::map<int64_t, Load> loads;
    Execute(s, m, loads);
    const std::string broken = BreaksDefinition(step.op, m);
    if (!broken.empty()) FindIn(s, "not what its name says: " + broken);
    if (step.op == "Exchange") CheckName(s, m);
    CheckAxes(s, m);
    if (step.op == "AllReduce") CountAllReduce(m, loads);
    CheckFigures(s, m, loads);
    if (!Reduces(step.op) && !HasSlots(m)) CheckSenders(s, m);
    CheckMemory(s, m, loads);
  }

  // Moves the pieces of the step. On return every device of `to` has what it needs, or there are findings.
  void Execute(size_t s, Movement& m, std::map<int64_t, Load>& loads) {
    const std::string& op = plan_.steps[s].op;
    const Mesh& from_mesh = m.from->layout.mesh;
    const Mesh& to_mesh = m.to->layout.mesh;
    m.received.assign(to_mesh.ids.size(), std::vector<ElementSet>(from_mesh.ids.size(), ElementSet(m.to->elements)));
    std::map<int64_t, std::vector<uint64_t>> next;
    for (size_t q = 0; q < to_mesh.ids.size(); ++q) {
      std::vector<uint64_t>& mine = next[to_mesh.ids[q]];
      mine.assign(static_cast<size_t>(m.to->elements), 0);
      const int64_t p = from_mesh.Position(to_mesh.ids[q]);
      if (p < 0) continue;
      const bool whole_shard_arrives = op == "AllPermute" && m.from->sets[p] != m.to->sets[q];
      if (whole_shard_arrives) continue;
      const std::vector<uint64_t>& before = values_[to_mesh.ids[q]];
      for (int64_t e = 0; e < m.to->elements; ++e) {
        if (!m.to->sets[q].Contains(e)) continue;
        const uint64_t have = before[e];
        if (Reduces(op) || have == contributions_->Needed(m.to->layout, static_cast<int64_t>(q))) mine[e] = have;
      }
    }
    for (const MovedBox& piece : plan_.pieces) {
      if (piece.step != static_cast<int64_t>(s)) continue;
      const int64_t p = from_mesh.Position(piece.sender);
      const int64_t q = to_mesh.Position(piece.receiver);
      if (p < 0 || q < 0) throw std::runtime_error("a piece from or to a device that is not there");
      if (piece.sender == piece.receiver) FindIn(s, "a piece that stays");
      for (const int64_t e : Elements(*m.to, piece)) {
        const auto index = static_cast<size_t>(e);
        const std::string where = "element " + std::to_string(e) + " from " + std::to_string(piece.sender) + " to " +
                                  std::to_string(piece.receiver);
        const uint64_t value = m.from->sets[p].Contains(e) ? values_[piece.sender][index] : 0;
        uint64_t& slot = next[piece.receiver][index];
        if (value == 0) FindIn(s, where + ": the sender does not hold it");
        if (!m.to->sets[q].Contains(e)) FindIn(s, where + ": the receiver does not need it");
        if ((slot & value) != 0) FindIn(s, where + ": it is there already");
        if (!Reduces(op) && slot != 0) FindIn(s, where + ": it is there with other contributions");
        slot |= value;
        m.received[q][p].Insert(e);
      }
    }
    for (size_t q = 0; q < to_mesh.ids.size(); ++q) {
      const uint64_t needed = contributions_->Needed(m.to->layout, static_cast<int64_t>(q));
      const std::vector<uint64_t>& mine = next[to_mesh.ids[q]];
      for (int64_t e = 0; e < m.to->elements; ++e) {
        if (m.to->sets[q].Contains(e) && mine[e] != needed) {
          FindIn(s, "device " + std::to_string(to_mesh.ids[q]) + " ends without element " + std::to_string(e));
          break;
        }
      }
      Count(m, q, loads);
    }
    values_ = std::move(next);
  }

  static std::vector<int64_t> Elements(const Holdings& in, const MovedBox& piece) {
    std::vector<int64_t> shape;  // flattened dimensions count once
    for (const Dim& dim : in.layout.dims) shape.push_back(dim.size);
    if (piece.offset.size() != shape.size() || piece.size.size() != shape.size())
      throw std::runtime_error("a piece of another rank");
    std::vector<int64_t> numbers = {0};
    for (size_t d = 0; d < shape.size(); ++d) {
      if (piece.offset[d] < 0 || piece.size[d] < 1 || piece.offset[d] + piece.size[d] > shape[d]) {
        throw std::runtime_error("a piece that is empty or outside");
      }
      std::vector<int64_t> longer;
      for (const int64_t number : numbers) {
        for (int64_t i = 0; i < piece.size[d]; ++i) longer.push_back(number * shape[d] + piece.offset[d] + i);
      }
      numbers = std::move(longer);
    }
    return numbers;
  }

  // Whether a part of a fragment lies in one stretch of it, where each element is looked for in its first slot.
  static bool Contiguous(const ElementSet& part, const std::vector<int64_t>& fragment) {
    int64_t first = -1;
    int64_t last = -1;
    std::set<int64_t> seen;
    for (size_t local = 0; local < fragment.size(); ++local) {
      if (!part.Contains(fragment[local]) || !seen.insert(fragment[local]).second) continue;
      if (first < 0) first = static_cast<int64_t>(local);
      last = static_cast<int64_t>(local);
    }
    return last - first + 1 == part.Count();
  }

  // A message has its elements in the receiver's order; a sender with another order has to pack it.
  static bool InOneStretch(const Movement& m, const ElementSet& message, size_t p, size_t q, bool at_sender) {
    const std::vector<int64_t>& mine = at_sender ? m.from->order[p] : m.to->order[q];
    if (!Contiguous(message, mine)) return false;
    if (!at_sender) return true;
    std::vector<int64_t> sent, wanted;
    std::set<int64_t> seen;
    for (const int64_t e : mine) {
      if (message.Contains(e) && seen.insert(e).second) sent.push_back(e);
    }
    for (const int64_t e : m.to->order[q]) {
      if (message.Contains(e)) wanted.push_back(e);
    }
    return sent == wanted;
  }

  void Count(const Movement& m, size_t q, std::map<int64_t, Load>& loads) {
    const int64_t receiver = m.to->layout.mesh.ids[q];
    for (size_t p = 0; p < m.received[q].size(); ++p) {
      const ElementSet& message = m.received[q][p];
      const int64_t n = message.Count();
      if (n == 0) continue;
      const int64_t sender = m.from->layout.mesh.ids[p];
      loads[receiver].recv += n;
      loads[receiver].from.insert(sender);
      loads[sender].send += n;
      loads[sender].to.insert(receiver);
      if (!InOneStretch(m, message, p, q, true)) loads[sender].staging += n;
      if (!InOneStretch(m, message, p, q, false)) loads[receiver].staging += n;
    }
  }

  // AllReduce = ReduceScatter + AllGather over ceil chunks of the local fragment.
  static void CountAllReduce(const Movement& m, std::map<int64_t, Load>& loads) {
    loads.clear();
    const std::vector<int64_t> keys = GroupKeys(m.from->layout.mesh, m.axes);
    std::map<int64_t, std::vector<size_t>> groups;
    for (size_t p = 0; p < keys.size(); ++p) groups[keys[p]].push_back(p);
    for (const auto& [key, members] : groups) {
      const auto n = static_cast<int64_t>(members.size());
      const int64_t local = m.to->sets[members[0]].Count();
      const int64_t chunk = (local + n - 1) / n;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t mine = std::min(local, (i + 1) * chunk) - std::min(local, i * chunk);
        Load& load = loads[m.from->layout.mesh.ids[members[i]]];
        load.recv = (n - 1) * mine + (local - mine);
        load.send = load.recv;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t other = std::min(local, (j + 1) * chunk) - std::min(local, j * chunk);
          if (j == i || (mine == 0 && other == 0)) continue;
          load.from.insert(j);
          load.to.insert(j);
        }
      }
    }
  }

  static bool HasSlots(const Movement& m) {
    const auto cut = [](const Holdings* side) {
      const std::vector<Dim>& dims = side->layout.dims;
      return std::any_of(dims.begin(), dims.end(), [](const Dim& dim) { return SlotTable(dim) != nullptr; });
    };
    return cut(m.from) || cut(m.to);
  }

  // An Exchange that is one of the named collectives carries its name. Patterns that are one only because some devices
  // hold nothing are left alone.
  void CheckName(size_t s, const Movement& m) {
    for (const Holdings* side : {m.from, m.to}) {
      for (const ElementSet& set : side->sets) {
        if (set.Count() == 0) return;
      }
    }
    int64_t moved = 0;
    for (const auto& row : m.received) {
      for (const ElementSet& set : row) moved += set.Count();
    }
    if (moved == 0 && m.crosses()) return;
    if (HasSlots(m) && moved > 0) return;  // its steps are Slices and Exchanges
    for (const char* name : {"Slice", "AllGather", "AllToAll", "AllPermute"}) {
      if (BreaksDefinition(name, m).empty()) FindIn(s, std::string("it is a ") + name);
    }
  }

  void CheckAxes(size_t s, const Movement& m) {
    const StepFacts& step = plan_.steps[s];
    if (m.crosses()) {
      std::set<int64_t> taking_part;
      for (size_t q = 0; q < m.received.size(); ++q) {
        for (size_t p = 0; p < m.received[q].size(); ++p) {
          if (m.received[q][p].Count() == 0) continue;
          taking_part.insert(m.to->layout.mesh.ids[q]);
          taking_part.insert(m.from->layout.mesh.ids[p]);
        }
      }
      SameIn(s, "group_size", step.group_size, static_cast<int64_t>(taking_part.size()));
      return;
    }
    const Mesh& mesh = m.from->layout.mesh;
    int64_t size = 1;
    for (const Ref& ref : m.axes) size *= ref.size;
    SameIn(s, "group_size", step.group_size, size);
    const std::vector<int64_t> keys = GroupKeys(mesh, m.axes);
    std::vector<bool> needed(m.axes.size(), false);
    for (size_t q = 0; q < m.received.size(); ++q) {
      for (size_t p = 0; p < m.received[q].size(); ++p) {
        if (m.received[q][p].Count() == 0) continue;
        if (keys[p] != keys[q]) FindIn(s, "transfers leaves the axes");
        for (size_t a = 0; a < m.axes.size(); ++a) {
          const auto from = static_cast<int64_t>(p);
          const auto to = static_cast<int64_t>(q);
          needed[a] = needed[a] || Coordinate(mesh, m.axes[a], from) != Coordinate(mesh, m.axes[a], to);
        }
      }
    }
    for (size_t a = 0; a < m.axes.size(); ++a) {
      if (!needed[a] && !Reduces(step.op)) FindIn(s, "nothing travels along " + step.axes[a]);
    }
    // What a reduction combines is known from its axes even when there is nothing to send.
    const int64_t before = std::popcount(contributions_->Needed(m.from->layout, 0));
    const int64_t after = std::popcount(contributions_->Needed(m.to->layout, 0));
    if (after != before * (Reduces(step.op) ? size : 1)) FindIn(s, "the axes are not those reduced");
  }

  void CheckFigures(size_t s, const Movement& m, const std::map<int64_t, Load>& loads) {
    const StepFacts& step = plan_.steps[s];
    Load most;
    int64_t total = 0;
    int64_t peers = 0;
    for (const auto& [device, load] : loads) {
      most.recv = std::max(most.recv, load.recv);
      most.send = std::max(most.send, load.send);
      total += load.recv;
      peers = std::max({peers, static_cast<int64_t>(load.from.size()), static_cast<int64_t>(load.to.size())});
      received_[device] += load.recv;
      sent_[device] += load.send;
    }
    const int64_t bytes = plan_.element_bytes;
    SameIn(s, "recv_bytes_max", step.recv_bytes_max, most.recv * bytes);
    SameIn(s, "recv_bytes_total", step.recv_bytes_total, total * bytes);
    SameIn(s, "send_bytes_max", step.send_bytes_max, most.send * bytes);
    SameIn(s, "local_bytes_before_max", step.local_bytes_before_max, m.from->LargestLocal() * bytes);
    SameIn(s, "local_bytes_after_max", step.local_bytes_after_max, m.to->LargestLocal() * bytes);
    SameIn(s, "peers_max", step.peers_max, peers);
    largest_local_ = std::max({largest_local_, m.from->LargestLocal(), m.to->LargestLocal()});
    sum_of_maxima_ += most.recv;
    if (plan_.flat_topology) {  // 5 us, 50 GB/s
      const int64_t busiest = std::max(most.recv, most.send) * bytes;
      const int64_t last = peers == 0 ? 0 : (busiest + peers - 1) / peers;
      const int64_t flowing = 5000 * std::min<int64_t>(1 + peers, 2) + (busiest + 49) / 50;
      const int64_t time = step.op == "Slice" ? 0 : std::max(flowing, 5000 * (1 + peers) + (last + 49) / 50);
      // A memory limit may have cut the step into rounds, and each pays the latency.
      if (!plan_.memory_limit_bytes || step.time_ns < time) SameIn(s, "time_ns", step.time_ns, time);
    }
  }

  // The demand for a source shard is spread over its holders.
  void CheckSenders(size_t s, const Movement& m) {
    struct Class {
      int64_t holders = 0;
      std::vector<int64_t> pieces;
      int64_t most = 0;
    };
    std::map<std::pair<ElementSet, uint64_t>, Class> classes;
    for (size_t p = 0; p < m.from->sets.size(); ++p) {
      if (m.from->sets[p].Count() == 0) continue;
      Class& c = classes[{m.from->sets[p], contributions_->Needed(m.from->layout, static_cast<int64_t>(p))}];
      ++c.holders;
      int64_t sent = 0;
      for (const auto& row : m.received) {
        const int64_t n = row[p].Count();
        if (n > 0) c.pieces.push_back(n);
        sent += n;
      }
      c.most = std::max(c.most, sent);
    }
    // On evenly divided layouts nobody sends a piece more than another holder.
    bool even = EvenlyDivided(m.from->layout) && EvenlyDivided(m.to->layout);
    int64_t piece = 0;
    for (const auto& [key, c] : classes) {
      for (const int64_t n : c.pieces) {
        even = even && (piece == 0 || piece == n);
        piece = n;
      }
    }
    for (const auto& [key, c] : classes) {
      if (c.pieces.empty()) continue;
      int64_t demand = 0;
      for (const int64_t n : c.pieces) demand += n;
      const int64_t largest = *std::max_element(c.pieces.begin(), c.pieces.end());
      const auto count = static_cast<int64_t>(c.pieces.size());
      const int64_t share = (demand + c.holders - 1) / c.holders;
      const int64_t allowed = even ? (count + c.holders - 1) / c.holders * largest : share + largest;
      // Between levels the nearest holder sends, however much that is.
      if (plan_.flat_topology && c.most > allowed) {
        FindIn(s, "a sender sends " + std::to_string(c.most) + " of " + std::to_string(demand) + " elements in " +
                      std::to_string(count) + " pieces, more than its share of " + std::to_string(c.holders) +
                      " holders");
      }
    }
  }

  void CheckMemory(size_t s, const Movement& m, const std::map<int64_t, Load>& loads) {
    std::set<int64_t> devices(m.from->layout.mesh.ids.begin(), m.from->layout.mesh.ids.end());
    devices.insert(m.to->layout.mesh.ids.begin(), m.to->layout.mesh.ids.end());
    auto local = [](const Holdings& holdings, int64_t device) {
      const int64_t p = holdings.layout.mesh.Position(device);
      return p < 0 ? int64_t{0} : static_cast<int64_t>(holdings.order[p].size());
    };
    for (const int64_t device : devices) {
      const auto load = loads.find(device);
      const int64_t without = local(*source_, device) + (s > 0 ? local(*m.from, device) : 0) + local(*m.to, device);
      least_peak_ = std::max(least_peak_, without);
      peak_ = std::max(peak_, without + (load == loads.end() ? 0 : load->second.staging));
    }
  }

  void CheckBox(size_t s, const Holdings& holdings) {
    for (size_t d = 0; d < holdings.layout.dims.size(); ++d) {
      for (int64_t p = 0; p < holdings.layout.mesh.size(); ++p) {
        if (Spans(holdings.layout, d, p).size() > 1) {
          FindIn(s, "an intermediate is not a box");
          return;
        }
      }
    }
  }

  void CheckEnd() {
    for (size_t q = 0; q < target_->sets.size(); ++q) {
      const int64_t device = target_->layout.mesh.ids[q];
      const uint64_t needed = contributions_->Needed(target_->layout, static_cast<int64_t>(q));
      for (int64_t e = 0; e < target_->elements; ++e) {
        if (!target_->sets[q].Contains(e)) continue;
        const auto found = values_.find(device);
        if (found == values_.end() || found->second[e] != needed) {
          Find("device " + std::to_string(device) + " does not end with element " + std::to_string(e));
          return;
        }
      }
    }
  }

  void CheckTotals() {
    const int64_t bytes = plan_.element_bytes;
    int64_t most = 0;
    int64_t total = 0;
    for (const auto& [device, n] : received_) {
      most = std::max(most, n);
      total += n;
    }
    Same("totals.recv_bytes_max", plan_.recv_bytes_max, most * bytes);
    Same("totals.recv_bytes_total", plan_.recv_bytes_total, total * bytes);
    largest_local_ = std::max({largest_local_, source_->LargestLocal(), target_->LargestLocal()});
    Same("totals.intermediate_bytes_max", plan_.intermediate_bytes_max, largest_local_ * bytes);
    if (plan_.intermediate_bytes_max > std::max(source_->LargestLocal(), target_->LargestLocal()) * bytes) {
      Find("an intermediate is larger than both ends");
    }
    int64_t time = 0;
    for (const StepFacts& step : plan_.steps) time += step.time_ns;
    if (plan_.chunks > 1) {
      CheckChunks(time);
    } else {
      Same("totals.time_ns", plan_.time_ns, time);
      if (plan_.peak_bytes < least_peak_ * bytes) Find("totals.peak_bytes leaves out a buffer");
      if (!plan_.steps.empty() && !plan_.memory_limit_bytes) Same("totals.peak_bytes", plan_.peak_bytes, peak_ * bytes);
    }
    if (plan_.memory_limit_bytes && plan_.peak_bytes > *plan_.memory_limit_bytes)
      Find("totals.peak_bytes is over the limit");
  }

  // Every chunk has the same part of every block, so that all of them move alike.
  void CheckChunks(int64_t sum_of_steps) {
    const auto dim = static_cast<size_t>(plan_.chunk_dim);
    if (plan_.flat_topology) Find("chunks where there is one level");
    for (const StepFacts& step : plan_.steps) {
      if (step.op == "AllReduce") Find("an AllReduce in chunks");
    }
    if (plan_.chunk_block % plan_.chunks != 0) Find("a block that does not divide into the chunks");
    std::vector<const Holdings*> layouts = {source_};
    for (const StepFacts& step : plan_.steps) layouts.push_back(Read(step.to_mesh, step.to));
    for (const Holdings* of : layouts) {
      for (int64_t p = 0; p < of->layout.mesh.size(); ++p) {
        for (const Span& span : Spans(of->layout, dim, p)) {
          const bool whole = span.begin % plan_.chunk_block == 0 && span.end % plan_.chunk_block == 0;
          if (!whole) Find("a layout cuts within a block");
        }
      }
    }
    if (!plan_.memory_limit_bytes && plan_.time_ns >= sum_of_steps) Find("chunks that save no time");
    int64_t peak = 0;
    std::set<int64_t> devices;
    for (const Holdings* of : layouts) devices.insert(of->layout.mesh.ids.begin(), of->layout.mesh.ids.end());
    const auto part = [&](int64_t elements) { return (elements + plan_.chunks - 1) / plan_.chunks; };
    for (const int64_t device : devices) {
      const auto local = [&](const Holdings* of) {
        const int64_t p = of->layout.mesh.Position(device);
        return p < 0 ? int64_t{0} : static_cast<int64_t>(of->order[p].size());
      };
      int64_t between = 0;
      for (size_t i = 1; i + 1 < layouts.size(); ++i) between += local(layouts[i]);
      peak = std::max(peak, local(layouts.front()) + local(layouts.back()) + part(2 * between) +
                                part(received_[device]) + part(sent_[device]));
    }
    Same("totals.peak_bytes", plan_.peak_bytes, peak * plan_.element_bytes);
  }

  void CheckBounds() {
    const LowerBounds bounds = Bounds(source_->layout, target_->layout, plan_.element_bytes);
    Same("bounds.recv_bytes_max", plan_.bound_recv_bytes_max, bounds.recv_max);
    Same("bounds.recv_bytes_total", plan_.bound_recv_bytes_total, bounds.recv_total);
    Same("bounds.intermediate_bytes_max", plan_.bound_intermediate_bytes_max, bounds.local_max);
    if (plan_.recv_bytes_max < plan_.bound_recv_bytes_max) Find("fewer bytes than the bound");
    if (plan_.recv_bytes_total < plan_.bound_recv_bytes_total) Find("fewer bytes in total than the bound");
    const bool meets = plan_.recv_bytes_max == plan_.bound_recv_bytes_max;
    if (plan_.certificate == "lower_bound" && !meets) Find("the certificate claims the bound");
    if (plan_.certificate == "exhaustive" && sum_of_maxima_ * plan_.element_bytes != plan_.recv_bytes_max)
      Find("the certificate claims an optimum");
    // On a topology with levels the bytes over the slow links count first.
    const bool free_choice = plan_.ops.empty() && !plan_.boxes_only && !plan_.memory_limit_bytes && plan_.flat_topology;
    if (free_choice && plan_.objective == "bytes" && source_->layout.partial.empty() && !meets)
      Find("misses the bound");
  }

  const PlanFacts& plan_;
  std::vector<std::string> findings_;
  std::map<std::string, std::unique_ptr<Holdings>> known_;
  const Holdings* source_ = nullptr;
  const Holdings* target_ = nullptr;
  std::unique_ptr<Contributions> contributions_;
  // What every device holds of every element, as contributions; 0: nothing.
  std::map<int64_t, std::vector<uint64_t>> values_;
  std::map<int64_t, int64_t> received_;  // elements, over all steps
  std::map<int64_t, int64_t> sent_;
  int64_t largest_local_ = 0;
  int64_t sum_of_maxima_ = 0;
  int64_t peak_ = 0;
  int64_t least_peak_ = 0;
};

}  // namespace

std::vector<std::string> Check(const PlanFacts& plan) { return Checker(plan).Run(); }

}  // namespace oracle
