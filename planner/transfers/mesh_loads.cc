// MeshTransfers: what a device receives and sends, and how much of it crosses which level.
#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/transfers/mesh_transfers.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"

namespace reshard::transfers {

void MeshTransfers::EachSums(absl::FunctionRef<void(PinnedSums&)> visit) {
  for (Dim& dim : dims_) {
    for (PinnedSums& sums : dim.received) visit(sums);
  }
  for (Receivers& receivers : within_) {
    for (PinnedSums& sums : receivers.sums) visit(sums);
  }
  for (std::optional<Receivers>& receivers : nearer_) {
    if (!receivers) continue;
    for (PinnedSums& sums : receivers->sums) visit(sums);
  }
}

void MeshTransfers::ForgetClasses() {
  EachSums([](PinnedSums& sums) { sums.Forget(); });
  for (Dim& dim : dims_) {
    dim.from_row = std::vector<int32_t>();
    dim.to_row = std::vector<int32_t>();
  }
  coordinates_ = std::vector<int32_t>();
}

// A sender of the same domain has the receiver's coordinates on the digits outside it.
void MeshTransfers::SumReceived() {
  absl::InlinedVector<int, 8> sender;
  for (Dim& dim : dims_) {
    dim.received.reserve(static_cast<size_t>(num_levels_));
    for (int level = 0; level < num_levels_; ++level) {
      sender.assign(dim.from.digits.size(), -1);
      for (size_t j = 0; j < sender.size(); ++j) {
        if (digits_[dim.from.digits[j]].level > level) sender[j] = dim.from.digits[j];
      }
      dim.received.emplace_back(*dim.overlap, digits_, dim.to, dim.from, sender, true);
    }
  }
}

MeshTransfers::Sums MeshTransfers::SentTo(const Receivers& receivers, const int32_t* coordinates) const {
  for (const auto& [a, b] : receivers.equal) {
    if (coordinates[a] != coordinates[b]) return {{0, 0}, {0, 0}};
  }
  Contiguity sent;
  // From the fastest dimension to the slowest, as Contiguity needs it.
  for (size_t d = dims_.size(); d-- > 0;) {
    sent.AddDim(receivers.sums[d].At(dims_[d].from.Row(coordinates), coordinates));
  }
  const auto times = [&](Contiguity::Sum sum) {
    return Contiguity::Sum{sum.elements * receivers.times, sum.count * receivers.times};
  };
  return {times(sent.all()), times(sent.scattered())};
}

// What crosses a level goes to the receivers within the domains of that level, except those that have a nearer holder.
void MeshTransfers::AddSent(const int32_t* coordinates, const Sums& own, Peers& peers, DeviceLoad& load) const {
  Sums before = own;
  for (int level = 0; level < num_levels_; ++level) {
    const Sums within = SentTo(within_[level], coordinates);
    const Sums nearer = nearer_[level] ? SentTo(*nearer_[level], coordinates) : before;
    const int64_t messages = within.all.count - nearer.all.count;
    load.send += within.all.elements - nearer.all.elements;
    load.staging += within.scattered.elements - nearer.scattered.elements;
    load.staging_messages += within.scattered.count - nearer.scattered.count;
    peers.receivers += messages;
    if (num_levels_ > 1) {
      load.levels[level].send = within.all.elements - nearer.all.elements;
      load.levels[level].peers = messages;
    }
    before = within;
  }
}

// What crosses a level is what comes from within its domains minus what comes from within those of the next level in.
// Both are products over dimensions; what crosses is not. `own`: what the device keeps.
void MeshTransfers::AddReceived(const int32_t* coordinates, Peers& peers, int64_t own, DeviceLoad& load) const {
  Contiguity::Sum before{0, 0};  // of the domains inside, the device itself left out
  for (int level = 0; level < num_levels_; ++level) {
    Contiguity::Sum received{1, 1};
    if (level + 1 == num_levels_) {
      received = {load.recv, peers.senders};
    } else {
      for (const Dim& dim : dims_) {
        const SpreadSums near = dim.received[level].At(dim.to.Row(coordinates), coordinates);
        received = {received.elements * near.total_elements(), received.count * near.total_count()};
      }
      received = {received.elements - own, received.count - (own > 0 ? 1 : 0)};
    }
    LevelLoad& out = load.levels[level];
    out.recv = received.elements - before.elements;
    peers.senders_at.push_back(received.count - before.count);
    out.peers = std::max(out.peers, peers.senders_at.back());
    before = received;
  }
}

absl::Status MeshTransfers::CountLevels(const Topology& topology) {
  constexpr int64_t kMaxMessages = int64_t{1} << 24;
  if (figures_.messages_total > kMaxMessages) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the domains of topology ", topology.name, " are not sub-meshes of ", ToString(mesh_),
                     ", and the step has more than ", kMaxMessages, " messages to count one by one"));
  }
  uniform_ = false;
  const auto levels = static_cast<size_t>(topology.num_levels());
  const auto devices = static_cast<size_t>(mesh_.size());
  // Each device has a load of its own now.
  EachSums([&](PinnedSums& sums) { sums.Tabulate(mesh_.size()); });
  counted_levels_.assign(devices, LevelLoads(levels));
  std::vector<int64_t> senders(devices * levels, 0), receivers = senders;
  for (size_t p = 0; p < devices; ++p) {
    const auto receiver = static_cast<int64_t>(p);
    EachReceived(receiver, [&](int64_t sender, const std::vector<const Pair*>& pairs) {
      if (sender == receiver) return;
      int64_t elements = 1;
      for (const Pair* pair : pairs) elements *= pair->elements;
      const auto level = static_cast<size_t>(topology.LevelOf(mesh_.Device(sender), mesh_.Device(receiver)));
      counted_levels_[p][level].recv += elements;
      counted_levels_[sender][level].send += elements;
      ++senders[p * levels + level];
      ++receivers[static_cast<size_t>(sender) * levels + level];
    });
  }
  for (size_t i = 0; i < senders.size(); ++i) {
    counted_levels_[i / levels][i % levels].peers = std::max(senders[i], receivers[i]);
  }
  return absl::OkStatus();
}

DeviceLoad MeshTransfers::LoadOf(const int32_t* coordinates, Peers& peers) const {
  Contiguity received, own_in_to, own_in_from;
  bool own = true;
  DeviceLoad load;
  load.before = load.after = 1;
  for (size_t d = dims_.size(); d-- > 0;) {
    const Dim& dim = dims_[d];
    const int64_t s = dim.from.Row(coordinates), t = dim.to.Row(coordinates);
    load.before *= dim.from_length[s];
    load.after *= dim.to_length[t];
    received.AddDim(dim.received.back().At(t, coordinates));
    const Pair* pair = dim.overlap->Find(s, t);
    own = own && pair != nullptr;
    if (!own) continue;
    SpreadSums in_to, in_from;
    in_to.Add(pair->in_to, pair->elements);
    own_in_to.AddDim(in_to);
    in_from.Add(pair->in_from, pair->elements);
    own_in_from.AddDim(in_from);
  }
  const Sums none{{0, 0}, {0, 0}};
  const Sums kept = own ? Sums{own_in_to.all(), own_in_to.scattered()} : none;
  load.recv = received.all().elements - kept.all.elements;
  load.staging = received.scattered().elements - kept.scattered.elements;
  load.staging_messages = received.scattered().count - kept.scattered.count;
  peers.senders = received.all().count - kept.all.count;
  if (num_levels_ > 1) load.levels.resize(num_levels_);
  AddSent(coordinates, own ? Sums{own_in_from.all(), own_in_from.scattered()} : none, peers, load);
  if (num_levels_ > 1) AddReceived(coordinates, peers, kept.all.elements, load);
  return load;
}

// Takes the first and the last coordinate of every digit, where division leaves larger or smaller parts, and as many in
// between as the number of devices allows.
void MeshTransfers::EnumerateSome(int64_t most_devices) {
  if (uniform_) EnumerateClasses();
  if (uniform_) return;
  std::vector<int64_t> taken(digits_.size(), 1);
  int64_t devices = 1;
  for (bool grown = true; grown;) {
    grown = false;
    for (size_t e = 0; e < digits_.size(); ++e) {
      const bool matters = from_dim_[e] >= 0 || to_dim_[e] >= 0;
      const int64_t more = devices / taken[e] * (taken[e] + 1);
      if (!matters || taken[e] == digits_[e].size || more > most_devices) continue;
      devices = more;
      ++taken[e];
      grown = true;
    }
  }
  coordinates_.resize(static_cast<size_t>(devices) * digits_.size());
  for (int64_t i = 0; i < devices; ++i) {
    int64_t rest = i;
    for (size_t e = digits_.size(); e-- > 0;) {
      const int64_t steps = std::max<int64_t>(1, taken[e] - 1);
      coordinates_[static_cast<size_t>(i) * digits_.size() + e] =
          static_cast<int32_t>(rest % taken[e] * (digits_[e].size - 1) / steps);
      rest /= taken[e];
    }
  }
}

BusiestLoads MeshTransfers::BusiestOfEnumerated() {
  const size_t devices = num_coordinates();
  if (!uniform_) EachSums([&](PinnedSums& sums) { sums.Tabulate(static_cast<int64_t>(devices)); });
  const auto levels = static_cast<size_t>(num_levels_);
  BusiestLoads busiest{LevelLoads(levels), LevelLoads(levels)};
  for (size_t i = 0; i < devices; ++i) {
    Peers peers;
    DeviceLoad load = LoadOf(coordinates(i), peers);
    if (num_levels_ == 1) {
      load.levels = {{load.recv, load.send, std::max(peers.senders, peers.receivers)}};
      peers.senders_at = {peers.senders};
    }
    for (size_t level = 0; level < levels; ++level) {
      const LevelLoad& one = load.levels[level];
      LevelLoad &all = busiest.all[level], &received = busiest.received[level];
      all.recv = received.recv = std::max(all.recv, one.recv);
      all.send = std::max(all.send, one.send);
      all.peers = std::max(all.peers, one.peers);
      received.peers = std::max(received.peers, peers.senders_at[level]);
    }
  }
  return busiest;
}

BusiestLoads MeshTransfers::BusiestOfSome(const Mesh& mesh, const digits::Refinement& refinement, RefineWith refine,
                                          const std::vector<const DimShards*>& from,
                                          const std::vector<const DimShards*>& to, int num_levels,
                                          int64_t most_devices) {
  const auto outline = [&](const digits::Refinement& by, Senders senders) {
    auto out = Outline(mesh, by, from, to, static_cast<int>(from.size()), num_levels, senders);
    out->EnumerateSome(most_devices);
    return out;
  };
  const auto by_place = outline(refinement, Senders::kByPlace);
  const auto finer = refine(by_place->CutsToSpread());
  const auto spread = outline(finer ? *finer : refinement, Senders::kAll);
  for (size_t d = 0; d < from.size(); ++d) {
    SomeRows some(*from[d], *to[d]);
    for (const MeshTransfers* one : {by_place.get(), spread.get()}) {
      const Dim& dim = one->dims_[d];
      for (size_t i = 0; i < one->num_coordinates(); ++i) {
        some.from.Add(dim.from.Row(one->coordinates(i)));
        some.to.Add(dim.to.Row(one->coordinates(i)));
      }
    }
    by_place->dims_[d].overlap = spread->dims_[d].overlap =
        std::make_shared<const DimOverlap>(Overlap(*from[d], *to[d], Detail::kSizes, &some));
  }
  by_place->SumUp();
  BusiestLoads loads = by_place->BusiestOfEnumerated();
  if (loads.all.back().send <= loads.all.back().recv) return loads;
  spread->SumUp();
  BusiestLoads others = spread->BusiestOfEnumerated();
  return others.all.back().send < loads.all.back().send ? others : loads;
}

// Tells apart what LoadOf reads from a device's coordinates: the lengths and sums of its rows, what it keeps, and which
// coordinates agree.
digits::DeviceKinds MeshTransfers::KindsOfClasses() const {
  digits::DeviceKinds out(num_classes_);
  std::vector<int32_t> column(num_classes_);
  const auto tell_apart = [&](int32_t entries, const auto& entry_of) {
    if (entries <= 1) return;
    for (size_t i = 0; i < column.size(); ++i) column[i] = entry_of(i);
    out.TellApart(column, entries);
  };
  for (size_t d = 0; d < dims_.size(); ++d) {
    const Dim& dim = dims_[d];
    // Sums that a row alone decides are told apart by row; the others by device.
    const auto rows_of = [&](const std::vector<int64_t>& lengths, const std::vector<int32_t>& row_of,
                             const std::vector<const PinnedSums*>& sums) {
      digits::DeviceKinds rows(lengths.size());
      rows.TellApart(lengths);
      std::vector<int32_t> of_row(lengths.size());
      for (const PinnedSums* one : sums) {
        if (!one->by_row()) continue;
        for (size_t r = 0; r < of_row.size(); ++r) of_row[r] = one->NumberAt(static_cast<int64_t>(r), nullptr);
        rows.TellApart(of_row, one->numbers());
      }
      tell_apart(rows.count(), [&](size_t i) { return rows.kinds()[static_cast<size_t>(row_of[i])]; });
      for (const PinnedSums* one : sums) {
        if (!one->by_row())
          tell_apart(one->numbers(), [&](size_t i) { return one->NumberAt(row_of[i], coordinates(i)); });
      }
    };
    std::vector<const PinnedSums*> sent, received;
    for (const Receivers& receivers : within_) sent.push_back(&receivers.sums[d]);
    for (const std::optional<Receivers>& receivers : nearer_) {
      if (receivers) sent.push_back(&receivers->sums[d]);
    }
    for (const PinnedSums& sums : dim.received) received.push_back(&sums);
    rows_of(dim.from_length, dim.from_row, sent);
    rows_of(dim.to_length, dim.to_row, received);
    // What it keeps: 0 where it keeps nothing.
    digits::DeviceKinds pairs(dim.overlap->pairs.size());
    std::vector<int64_t> elements;
    std::vector<int32_t> spreads;
    elements.reserve(dim.overlap->pairs.size());
    spreads.reserve(dim.overlap->pairs.size());
    for (const Pair& pair : dim.overlap->pairs) {
      elements.push_back(pair.elements);
      spreads.push_back(static_cast<int32_t>(pair.in_from) * kNumSpreads + static_cast<int32_t>(pair.in_to));
    }
    pairs.TellApart(elements);
    pairs.TellApart(spreads, kNumSpreads * kNumSpreads);
    tell_apart(pairs.count() + 1, [&](size_t i) {
      const Pair* pair = dim.overlap->Find(dim.from_row[i], dim.to_row[i]);
      return pair == nullptr ? 0 : 1 + pairs.kinds()[static_cast<size_t>(pair - dim.overlap->pairs.data())];
    });
  }
  const auto agree = [&](const Receivers& receivers) {
    for (const auto& [a, b] : receivers.equal) {
      tell_apart(2, [&, a = a, b = b](size_t i) { return coordinate(i, a) == coordinate(i, b) ? 1 : 0; });
    }
  };
  for (const Receivers& receivers : within_) agree(receivers);
  for (const std::optional<Receivers>& receivers : nearer_) {
    if (receivers) agree(*receivers);
  }
  return out;
}

void MeshTransfers::ComputeLoads() {
  std::vector<digits::DeviceClass> kinds;  // by class
  if (uniform_) {
    kind_.resize(num_classes_);
    std::iota(kind_.begin(), kind_.end(), 0);
    for (size_t i = 0; i < num_classes_; ++i) kinds.push_back({static_cast<int64_t>(i), devices(i)});
  } else {
    const digits::DeviceKinds found = KindsOfClasses();
    kind_.assign(found.kinds().begin(), found.kinds().end());
    kinds = found.Classes();
    for (digits::DeviceClass& kind : kinds) kind.devices *= devices(static_cast<size_t>(kind.position));
  }
  std::vector<int64_t> sends;  // messages, by kind
  for (const digits::DeviceClass& kind : kinds) {
    Peers peers;
    loads_.push_back(LoadOf(coordinates(static_cast<size_t>(kind.position)), peers));
    const DeviceLoad& load = loads_.back();
    sends.push_back(peers.receivers);
    figures_.recv_max = std::max(figures_.recv_max, load.recv);
    figures_.recv_total += load.recv * kind.devices;
    figures_.messages_total += peers.senders * kind.devices;
    figures_.send_max = std::max(figures_.send_max, load.send);
    figures_.peers_max = std::max({figures_.peers_max, peers.senders, peers.receivers});
  }
  balanced_ = Balanced(sends);
}

bool MeshTransfers::IsHeldOnce() const {
  for (size_t e = 0; e < digits_.size(); ++e) {
    if (from_dim_[e] < 0 && to_dim_[e] >= 0) return false;
  }
  return true;
}

int64_t MeshTransfers::holders() const {
  int64_t cells = 1;
  for (const Dim& dim : dims_) cells *= dim.overlap->from_rows;
  return mesh_.size() / cells;
}

// Whether no device sends more than its share of its shard's pieces, rounded up, or, if pieces differ in size, more
// than its share of the elements plus the largest piece. A sender's mean piece, rounded up, is used for the largest,
// since it is never above it: the check can only be too strict, and ListTransfers then balances.
bool MeshTransfers::Balanced(const std::vector<int64_t>& sends) const {
  int64_t active = 1;
  for (size_t e = 0; e < digits_.size(); ++e) active *= active_digit_[e] ? digits_[e].size : 1;
  // Digits that neither layout uses make groups that have nothing to do with each other.
  const int64_t holders = this->holders() / (mesh_.size() / active);
  if (holders <= 1) return true;
  const auto sends_of = [&](size_t i) { return sends[static_cast<size_t>(kind_[i])]; };
  if (uniform_) {
    // All pieces are of one size. A shard's receivers are the devices whose digits agree with it wherever the target
    // puts one at the shard's place; the holders among them keep what they have.
    for (size_t i = 0; i < num_classes_; ++i) {
      if (sends_of(i) == 0) continue;
      int64_t receivers = active, keepers = holders;
      for (const auto& [e, f] : met_) {
        receivers /= digits_[f].size;
        if (e == f) continue;
        if (from_dim_[f] < 0) {
          keepers /= digits_[f].size;
        } else if (coordinate(i, e) != coordinate(i, f)) {
          keepers = 0;
        }
      }
      const int64_t pieces = receivers - keepers;
      if (sends_of(i) > CeilDiv(pieces, holders)) return false;
    }
    return true;
  }
  std::vector<int64_t> demand(static_cast<size_t>(active / holders), 0), pieces = demand;
  auto cell_of = [&](size_t i) {
    int64_t cell = 0;
    for (const Dim& dim : dims_) cell = cell * dim.overlap->from_rows + dim.from_row[i];
    return static_cast<size_t>(cell);
  };
  for (size_t i = 0; i < num_classes_; ++i) {
    demand[cell_of(i)] += load(i).send;
    pieces[cell_of(i)] += sends_of(i);
  }
  for (size_t i = 0; i < num_classes_; ++i) {
    if (sends_of(i) == 0) continue;
    const size_t cell = cell_of(i);
    const int64_t piece = CeilDiv(load(i).send, sends_of(i));
    const bool equal = demand[cell] == pieces[cell] * piece;
    const int64_t share = equal ? CeilDiv(pieces[cell], holders) * piece : CeilDiv(demand[cell], holders) + piece;
    if (load(i).send > share) return false;
  }
  return true;
}

std::vector<int64_t> MeshTransfers::Devices() const {
  std::vector<int64_t> out(static_cast<size_t>(mesh_.size()));
  for (size_t p = 0; p < out.size(); ++p) out[p] = mesh_.Device(static_cast<int64_t>(p));
  return out;
}

int64_t MeshTransfers::ClassAt(int64_t position) const {
  if (static_cast<int64_t>(kind_.size()) == mesh_.size()) return position;  // a class for each
  int64_t active = 0;
  for (size_t e = 0; e < digits_.size(); ++e) {
    if (active_digit_[e]) active = active * digits_[e].size + digits_[e].Coordinate(position);
  }
  return active;
}

std::vector<int32_t> MeshTransfers::Kinds() const {
  if (!counted_levels_.empty() || (uniform_ && class_of_pattern_.empty())) return {};
  if (static_cast<int64_t>(kind_.size()) == mesh_.size() && !uniform_) return kind_;
  std::vector<int32_t> out(static_cast<size_t>(mesh_.size()));
  for (size_t p = 0; p < out.size(); ++p) {
    const auto position = static_cast<int64_t>(p);
    out[p] = kind_[uniform_ ? ClassOfPattern(position) : static_cast<size_t>(ClassAt(position))];
  }
  return out;
}

size_t MeshTransfers::ClassOfPattern(int64_t position) const {
  absl::InlinedVector<int32_t, 16> of_device;
  for (const digits::Digit& digit : digits_) of_device.push_back(digit.Coordinate(position));
  const std::pair pattern(PatternOf(of_device.data()), size_t{0});
  return std::lower_bound(class_of_pattern_.begin(), class_of_pattern_.end(), pattern)->second;
}

DeviceLoad MeshTransfers::Load(int64_t index) const {
  if (counted_levels_.empty()) {
    if (!uniform_) return load(static_cast<size_t>(ClassAt(index)));
    if (!class_of_pattern_.empty()) return load(ClassOfPattern(index));
  }
  std::vector<int32_t> of_device;
  for (const digits::Digit& digit : digits_) of_device.push_back(digit.Coordinate(index));
  Peers peers;
  DeviceLoad out = LoadOf(of_device.data(), peers);
  if (!counted_levels_.empty()) out.levels = counted_levels_[static_cast<size_t>(index)];
  return out;
}

}  // namespace reshard::transfers
