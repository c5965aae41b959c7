// The files of page/assets, embedded when CMake runs.
#ifndef RESHARD_PAGE_ASSETS_H_
#define RESHARD_PAGE_ASSETS_H_

#include <string_view>
#include <vector>

namespace reshard::page {

struct Asset {
  std::string_view name;
  std::string_view text;
};

// page.html, page.css, then the scripts in the order in which they run.
const std::vector<Asset>& Assets();

}  // namespace reshard::page

#endif  // RESHARD_PAGE_ASSETS_H_
