// Keeps shard maps of layouts whose transfers are needed again and again, and creates transfers from known maps.
#ifndef RESHARD_PLANNER_TRANSFERS_SHARD_MAPS_H_
#define RESHARD_PLANNER_TRANSFERS_SHARD_MAPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/layout/shard_map.h"
#include "reshard/planner/traffic.h"

namespace reshard::transfers {

// What the busiest of a few hundred devices do in an exchange over one mesh, by level.
struct BusiestLoads {
  // About the most elements that one device receives, and sends, across the level, and the most peers of one.
  LevelLoads all;
  // Of these, what is received, and the peers that it comes from, however the nearest holders share the sending.
  LevelLoads received;
};

// State: the maps asked for so far, as long as they are not too large together; always those of the layouts that it was
// made for; and samples of moves between them. Invariant: a map is that of its layout. Not thread-safe.
class ShardMaps {
 public:
  // Always keeps the maps of these: the ends of a problem, say.
  explicit ShardMaps(const std::vector<Layout>& always) {
    for (const Layout& layout : always) kept_.emplace_back(layout, nullptr);
  }
  // Never null. Errors: those of ShardMap::Create.
  absl::StatusOr<std::shared_ptr<const ShardMap>> Of(const Layout& layout);

  // What a few hundred devices tell about a move.
  struct Sample {
    int64_t looked_at = 0;  // rows and intervals of both maps
    // nullopt where only all messages would tell.
    std::optional<BusiestLoads> busiest;
  };
  // The sample of from -> to, taken once. Requires that the topology is always the same. Errors: those of Of.
  absl::StatusOr<Sample> SampleOf(const Layout& from, const Layout& to, const Topology& topology);

 private:
  struct Move {
    Layout from, to;
    Sample sample;
  };

  std::vector<std::pair<Layout, std::shared_ptr<const ShardMap>>> kept_;
  int64_t size_ = 0;         // rows and intervals of the maps that need not be kept
  std::vector<Move> moves_;  // families of candidates ask for many again
};

// Rows and intervals of all dimensions together: what looking at a map costs.
int64_t RowsAndIntervals(const ShardMap& map);

// A layout with its map. Both must outlive it.
struct MappedLayout {
  const Layout& layout;
  const ShardMap& map;
};

// What is asked of a schedule. With kMessages, only what MessageSchedule has may be used; with kLoads, only the rest.
enum class Asked { kMessages, kLoads, kAll };

// TransferSchedule::Create without enumerating the layouts again. The result does not refer to the maps.
absl::StatusOr<std::unique_ptr<TransferSchedule>> CreateTransfers(Op op, const MappedLayout& from,
                                                                  const MappedLayout& to, const Topology& topology,
                                                                  Asked asked, int64_t first_holder = 0);

// The messages of one step of a plan, the same as those of TransferSchedule::Create, at a fraction of its cost: what
// only says how good they are is not counted. `maps` provides the maps of both layouts. `only`: the schedule may be
// asked for this device alone, so that less is looked at.
absl::StatusOr<std::unique_ptr<MessageSchedule>> CreateMessages(const Step& step, const Topology& topology,
                                                                ShardMaps& maps,
                                                                std::optional<int64_t> only = std::nullopt);
// The loads of one step, without its messages: as CreateTransfers with Asked::kLoads.
absl::StatusOr<std::unique_ptr<TransferSchedule>> CreateLoads(const Step& step, const Topology& topology,
                                                              ShardMaps& maps);

// See ShardMaps::Sample.
std::optional<BusiestLoads> FindBusiest(const MappedLayout& from, const MappedLayout& to, const Topology& topology);

}  // namespace reshard::transfers

#endif  // RESHARD_PLANNER_TRANSFERS_SHARD_MAPS_H_
