// Layouts as the data of a page: which blocks each dimension has, and which digits of a device's position choose them.
#ifndef RESHARD_PLANNER_PAGE_LAYOUT_DATA_H_
#define RESHARD_PLANNER_PAGE_LAYOUT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/page/detail.h"
#include "reshard/layout/layout.h"

namespace reshard::page {

// The layouts of a page, each once.
class LayoutTable {
 public:
  explicit LayoutTable(const Detail& detail) : detail_(detail) {}
  // The index of the layout in the table. Adds it if the table does not have it. Layouts are drawn along `drawn` (see
  // DrawnDims).
  size_t Add(const Layout& layout, const std::vector<int>& drawn);
  // A JSON array.
  std::string Text() const;
  // About its size.
  size_t bytes() const { return bytes_; }

 private:
  const Detail detail_;
  std::map<std::string, size_t> index_;  // by text, mesh and drawn dimensions
  std::vector<std::string> texts_;
  size_t bytes_ = 0;  // of all texts
};

// The ids of the devices that a page lists one by one: those of both meshes in ascending order, or the first of them.
std::vector<int64_t> ListedDevices(const Mesh& from, const Mesh& to, const Detail& detail);

}  // namespace reshard::page

#endif  // RESHARD_PLANNER_PAGE_LAYOUT_DATA_H_
