// How much of a plan its page shows.
#ifndef RESHARD_PLANNER_PAGE_DETAIL_H_
#define RESHARD_PLANNER_PAGE_DETAIL_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace reshard::page {

struct Detail {
  int64_t devices = 0;   // listed one by one
  int64_t messages = 0;  // of one step, up to which the page says who receives from whom
  int64_t boxes = 0;     // of one step, up to which it says what part of the tensor a message carries
  size_t blocks = 0;     // of one layout that are drawn
  bool others = false;   // whether alternatives can be opened
  // Whether no other has less.
  bool last() const { return devices == 0; }
};

// From the most to the least. A page takes the first that fits.
inline constexpr std::array<Detail, 5> kDetails = {{
    {.devices = 4096, .messages = 1 << 20, .boxes = 2048, .blocks = 4096, .others = true},
    {.devices = 4096, .messages = 1 << 20, .boxes = 512, .blocks = 4096, .others = false},
    {.devices = 1024, .messages = 1 << 16, .boxes = 128, .blocks = 1024, .others = false},
    {.devices = 256, .messages = 1 << 12, .boxes = 0, .blocks = 256, .others = false},
    {.devices = 0, .messages = 0, .boxes = 0, .blocks = 64, .others = false},
}};

}  // namespace reshard::page

#endif  // RESHARD_PLANNER_PAGE_DETAIL_H_
