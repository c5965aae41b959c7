#include "planner/search/mesh_traffic.h"

#include <algorithm>
#include <map>

#include "reshard/layout/checked.h"

namespace reshard::search {

std::unique_ptr<MeshTraffic> MeshTraffic::Create(const Mesh& mesh, const Refinement& refinement,
                                                 const std::vector<const DimShards*>& from,
                                                 const std::vector<const DimShards*>& to, int rank) {
  auto out = std::unique_ptr<MeshTraffic>(new MeshTraffic());
  out->mesh_ = mesh;
  out->rank_ = rank;
  out->digits_ = refinement.digits;
  out->devices_.resize(static_cast<size_t>(mesh.size()));
  for (int64_t p = 0; p < mesh.size(); ++p) out->devices_[static_cast<size_t>(p)] = mesh.Device(p);
  const size_t k = out->digits_.size();
  out->from_dim_.assign(k, -1);
  out->to_dim_.assign(k, -1);
  out->dims_.resize(from.size());
  for (size_t d = 0; d < from.size(); ++d) {
    Dim& dim = out->dims_[d];
    for (const AxisRef& ref : from[d]->digits) {
      for (int digit : refinement.DigitsOf(ref)) dim.from_digits.push_back(digit);
    }
    for (const AxisRef& ref : to[d]->digits) {
      for (int digit : refinement.DigitsOf(ref)) dim.to_digits.push_back(digit);
    }
    for (int digit : dim.from_digits) out->from_dim_[static_cast<size_t>(digit)] = static_cast<int>(d);
    for (int digit : dim.to_digits) out->to_dim_[static_cast<size_t>(digit)] = static_cast<int>(d);
  }
  out->AddDims(from, to);
  out->Match(refinement);
  out->EnumerateActive();
  out->SumByRow();
  if (!out->ComputeLoads()) return nullptr;
  out->FindAxes();
  out->ClassifyPattern();
  return out;
}

void MeshTraffic::AddDims(const std::vector<const DimShards*>& from, const std::vector<const DimShards*>& to) {
  auto weights = [&](const std::vector<int>& used) {
    std::vector<int64_t> out(used.size());
    int64_t weight = 1;
    for (size_t i = used.size(); i-- > 0;) {
      out[i] = weight;
      weight *= digits_[static_cast<size_t>(used[i])].size;
    }
    return out;
  };
  for (size_t d = 0; d < dims_.size(); ++d) {
    Dim& dim = dims_[d];
    dim.overlap = Overlap(*from[d], *to[d]);
    dim.from_weights = weights(dim.from_digits);
    dim.to_weights = weights(dim.to_digits);
    dim.from_length = from[d]->length;
    dim.to_length = to[d]->length;
  }
}

// Sigma: a digit e that only the target uses, at a place where the source has digit a, is fixed for all receivers of a
// source shard; the holders along e would idle. The digit x that the receivers of that shard do differ in is found by
// following places: a, or, where a itself moves to a place of another source digit, that digit, and so on.
void MeshTraffic::Match(const Refinement& refinement) {
  const size_t k = digits_.size();
  sigma_.assign(k, -1);
  for (size_t e = 0; e < k; ++e) {
    if (from_dim_[e] < 0) sigma_[e] = static_cast<int>(e);
  }
  std::vector<int> displaced(k, -1);  // target digit -> the source digit at its place
  for (int d = 0; d < rank_; ++d) {
    // Exact places first; then, in a block that both layouts cut completely (6 as 2,3 against 3,2), equal sizes in
    // order.
    std::vector<const Place*> sources, targets;
    std::map<int64_t, int> boundaries;
    auto collect = [&](const std::vector<Place>& places, std::vector<const Place*>& into, int bit) {
      boundaries[1] |= bit;
      for (const Place& place : places) {
        if (place.dim != d) continue;
        boundaries[place.hi] |= bit;
        if (place.digit >= 0) into.push_back(&place);
      }
    };
    collect(refinement.from, sources, 1);
    collect(refinement.to, targets, 2);
    auto block = [&](const Place& place) {  // its first boundary, or -1 when it has no common end
      int64_t start = 1;
      for (const auto& [boundary, bits] : boundaries) {
        if (bits != 3) continue;
        if (boundary >= place.hi) return start;
        if (boundary <= place.lo) start = boundary;
      }
      return int64_t{-1};
    };
    std::vector<bool> taken(sources.size(), false);
    for (bool exact : {true, false}) {
      for (const Place* target : targets) {
        if (displaced[static_cast<size_t>(target->digit)] >= 0) continue;
        for (size_t i = 0; i < sources.size(); ++i) {
          const Place* source = sources[i];
          if (taken[i] || source->hi / source->lo != target->hi / target->lo) continue;
          // A reflected axis against a plain one meets both of its values.
          if (source->kind != target->kind || source->kind == Factor::Kind::kSizes) continue;
          const bool fits = exact ? source->lo == target->lo : block(*source) == block(*target) && block(*source) >= 0;
          if (!fits) continue;
          displaced[static_cast<size_t>(target->digit)] = source->digit;
          taken[i] = true;
          break;
        }
      }
    }
  }
  for (size_t e = 0; e < k; ++e) {
    if (from_dim_[e] >= 0 || displaced[e] < 0) continue;
    int x = displaced[e];
    for (size_t guard = 0; guard < k && displaced[static_cast<size_t>(x)] >= 0; ++guard) {
      if (displaced[static_cast<size_t>(x)] == x) break;
      x = displaced[static_cast<size_t>(x)];
    }
    sigma_[e] = x;
  }
  sigma_inverse_.assign(k, -1);
  for (size_t e = 0; e < k; ++e) {
    if (sigma_[e] < 0) continue;
    sigma_inverse_[static_cast<size_t>(sigma_[e])] = static_cast<int>(e);
    has_swaps_ |= sigma_[e] != static_cast<int>(e);
  }
}

void MeshTraffic::EnumerateActive() {
  const size_t k = digits_.size();
  active_digit_.assign(k, false);
  num_active_ = 1;
  for (size_t e = 0; e < k; ++e) {
    active_digit_[e] = from_dim_[e] >= 0 || to_dim_[e] >= 0;
    if (active_digit_[e]) num_active_ *= digits_[e].size;
  }
  copies_ = mesh_.size() / num_active_;
  coordinates_.assign(static_cast<size_t>(num_active_) * k, 0);
  for (size_t i = 1; i < static_cast<size_t>(num_active_); ++i) {
    for (size_t e = 0; e < k; ++e) coordinates_[i * k + e] = coordinates_[(i - 1) * k + e];
    for (size_t e = k; e-- > 0;) {
      if (!active_digit_[e]) continue;
      if (++coordinates_[i * k + e] < digits_[e].size) break;
      coordinates_[i * k + e] = 0;
    }
  }
  for (Dim& dim : dims_) {
    dim.from_row.assign(static_cast<size_t>(num_active_), 0);
    dim.to_row.assign(static_cast<size_t>(num_active_), 0);
    for (size_t i = 0; i < static_cast<size_t>(num_active_); ++i) {
      int64_t row = 0;
      for (size_t j = 0; j < dim.from_digits.size(); ++j)
        row += coordinate(i, dim.from_digits[j]) * dim.from_weights[j];
      dim.from_row[i] = static_cast<int32_t>(row);
      row = 0;
      for (size_t j = 0; j < dim.to_digits.size(); ++j) row += coordinate(i, dim.to_digits[j]) * dim.to_weights[j];
      dim.to_row[i] = static_cast<int32_t>(row);
    }
  }
}

void MeshTraffic::SumByRow() {
  for (Dim& dim : dims_) {
    dim.received.resize(static_cast<size_t>(dim.overlap.to_rows));
    dim.sent_pins.assign(dim.to_digits.size(), -1);
    dim.kept_pins.assign(dim.to_digits.size(), -1);
    dim.sent_pinned = dim.kept_pinned = 1;
    for (size_t j = 0; j < dim.to_digits.size(); ++j) {
      const auto f = static_cast<size_t>(dim.to_digits[j]);
      dim.sent_pins[j] = sigma_inverse_[f];
      if (dim.sent_pins[j] >= 0) dim.sent_pinned *= digits_[f].size;
      const bool swapped = sigma_[f] >= 0 && sigma_[f] != static_cast<int>(f);
      dim.kept_pins[j] = swapped ? -1 : static_cast<int>(f);
      if (!swapped) dim.kept_pinned *= digits_[f].size;
    }
    dim.sent.resize(static_cast<size_t>(dim.overlap.from_rows * dim.sent_pinned));
    if (has_swaps_) dim.kept.resize(static_cast<size_t>(dim.overlap.from_rows * dim.kept_pinned));
    auto key = [&](const std::vector<int>& pins, int64_t to_row) {
      int64_t out = 0;
      for (size_t j = 0; j < pins.size(); ++j) {
        if (pins[j] < 0) continue;
        const int64_t size = digits_[static_cast<size_t>(dim.to_digits[j])].size;
        out = out * size + to_row / dim.to_weights[j] % size;
      }
      return out;
    };
    int64_t row = -1, sent_key = 0, kept_key = 0;
    for (const Pair& pair : dim.overlap.pairs) {
      if (pair.to_row != row) {
        row = pair.to_row;
        sent_key = key(dim.sent_pins, row);
        if (has_swaps_) kept_key = key(dim.kept_pins, row);
      }
      dim.received[static_cast<size_t>(row)].Add(pair.in_to, pair.elements);
      dim.sent[static_cast<size_t>(pair.from_row * dim.sent_pinned + sent_key)].Add(pair.in_from, pair.elements);
      if (has_swaps_) {
        dim.kept[static_cast<size_t>(pair.from_row * dim.kept_pinned + kept_key)].Add(pair.in_from, pair.elements);
      }
    }
  }
}

bool MeshTraffic::ComputeLoads() {
  // Receiver digits that neither a dimension of the target nor the sender's coordinates fix: each value is a receiver.
  int64_t receivers = 1;
  for (size_t f = 0; f < digits_.size(); ++f) {
    if (active_digit_[f] && to_dim_[f] < 0 && sigma_inverse_[f] < 0) receivers *= digits_[f].size;
  }
  int64_t kept_receivers = 1;
  for (size_t f = 0; f < digits_.size(); ++f) {
    const bool swapped = sigma_[f] >= 0 && sigma_[f] != static_cast<int>(f);
    if (swapped && to_dim_[f] < 0) kept_receivers *= digits_[f].size;
  }

  int64_t cells = 1;
  for (const Dim& dim : dims_) cells *= dim.overlap.from_rows;
  std::vector<int64_t> demand(static_cast<size_t>(cells), 0), pieces = demand;
  auto cell_of = [&](size_t i) {
    int64_t cell = 0;
    for (const Dim& dim : dims_) cell = cell * dim.overlap.from_rows + dim.from_row[i];
    return static_cast<size_t>(cell);
  };

  std::vector<int64_t> sends(static_cast<size_t>(num_active_), 0);  // messages
  loads_.assign(static_cast<size_t>(num_active_), {});
  for (size_t i = 0; i < static_cast<size_t>(num_active_); ++i) {
    Contiguity received, sent, kept, own_in_to;
    bool own = true;
    DeviceLoad& load = loads_[i];
    load.before = load.after = 1;
    for (size_t d = dims_.size(); d-- > 0;) {
      const Dim& dim = dims_[d];
      const int64_t s = dim.from_row[i], t = dim.to_row[i];
      load.before *= dim.from_length[static_cast<size_t>(s)];
      load.after *= dim.to_length[static_cast<size_t>(t)];
      received.AddDim(dim.received[static_cast<size_t>(t)]);
      auto key = [&](const std::vector<int>& pins) {
        int64_t out = 0;
        for (size_t j = 0; j < pins.size(); ++j) {
          if (pins[j] >= 0) out = out * digits_[static_cast<size_t>(dim.to_digits[j])].size + coordinate(i, pins[j]);
        }
        return out;
      };
      sent.AddDim(dim.sent[static_cast<size_t>(s * dim.sent_pinned + key(dim.sent_pins))]);
      if (has_swaps_) kept.AddDim(dim.kept[static_cast<size_t>(s * dim.kept_pinned + key(dim.kept_pins))]);
      const Pair* pair = dim.overlap.Find(s, t);
      own = own && pair != nullptr;
      if (own) {
        SpreadSums in_to;
        in_to.Add(pair->in_to, pair->elements);
        own_in_to.AddDim(in_to);
        if (!has_swaps_) {
          SpreadSums in_from;
          in_from.Add(pair->in_from, pair->elements);
          kept.AddDim(in_from);
        }
      }
    }
    // Receivers that hold this device's shard themselves are pinned to it only when its swapped digits agree.
    bool keeps = has_swaps_ || own;
    for (size_t e = 0; has_swaps_ && e < digits_.size(); ++e) {
      if (sigma_[e] >= 0 && sigma_[e] != static_cast<int>(e)) {
        keeps = keeps && coordinate(i, static_cast<int>(e)) == coordinate(i, sigma_[e]);
      }
    }
    const int64_t kept_times = !keeps ? 0 : has_swaps_ ? kept_receivers : 1;
    load.recv = received.all().elements - (own ? own_in_to.all().elements : 0);
    load.send = receivers * sent.all().elements - kept_times * kept.all().elements;
    const int64_t recv_peers = received.all().count - (own ? 1 : 0);
    const int64_t send_peers = receivers * sent.all().count - kept_times * kept.all().count;
    load.staging = received.scattered().elements - (own ? own_in_to.scattered().elements : 0) +
                   receivers * sent.scattered().elements - kept_times * kept.scattered().elements;
    load.staging_messages = received.scattered().count - (own ? own_in_to.scattered().count : 0) +
                            receivers * sent.scattered().count - kept_times * kept.scattered().count;
    demand[cell_of(i)] += load.send;
    pieces[cell_of(i)] += send_peers;
    sends[i] = send_peers;
    figures_.recv_max = std::max(figures_.recv_max, load.recv);
    figures_.recv_total += load.recv * copies_;
    figures_.messages_total += recv_peers * copies_;
    figures_.send_max = std::max(figures_.send_max, load.send);
    figures_.peers_max = std::max({figures_.peers_max, recv_peers, send_peers});
  }

  // Balance: nobody sends more than its share of its shard's pieces, rounded up; where they differ in size, than its
  // share of the elements plus the largest piece. A sender's mean piece stands for the largest: never above it.
  const int64_t holders = num_active_ / cells;
  for (size_t i = 0; i < static_cast<size_t>(num_active_) && holders > 1; ++i) {
    if (sends[i] == 0) continue;
    const size_t cell = cell_of(i);
    const int64_t piece = CeilDiv(loads_[i].send, sends[i]);
    const bool equal = demand[cell] == pieces[cell] * piece;
    const int64_t share = equal ? CeilDiv(pieces[cell], holders) * piece : CeilDiv(demand[cell], holders) + piece;
    if (loads_[i].send > share) return false;
  }
  return true;
}

std::vector<DeviceLoad> MeshTraffic::Loads() const {
  std::vector<int64_t> weights(digits_.size(), 0);
  int64_t weight = 1;
  for (size_t e = digits_.size(); e-- > 0;) {
    if (!active_digit_[e]) continue;
    weights[e] = weight;
    weight *= digits_[e].size;
  }
  if (copies_ == 1 && digits_.size() == static_cast<size_t>(mesh_.num_axes())) return loads_;
  std::vector<DeviceLoad> out(static_cast<size_t>(mesh_.size()));
  for (int64_t p = 0; p < mesh_.size(); ++p) {
    int64_t active = 0;
    for (size_t e = 0; e < digits_.size(); ++e) {
      if (weights[e] != 0) active += digits_[e].Coordinate(p) * weights[e];
    }
    out[static_cast<size_t>(p)] = loads_[static_cast<size_t>(active)];
  }
  return out;
}

}  // namespace reshard::search
