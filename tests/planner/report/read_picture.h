// Reads pictures back: the grid of DrawLayout and the blocks of LayoutToSvg, as a person would.
#ifndef RESHARD_TESTS_PLANNER_REPORT_READ_PICTURE_H_
#define RESHARD_TESTS_PLANNER_REPORT_READ_PICTURE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reshard/layout/layout.h"

namespace reshard::testing {

// One cell: where it is along the dimensions that are drawn, and what is written in it.
struct Cell {
  std::map<int, Interval> where;  // by dimension
  std::string label;
};

// The cells of the grid in `text`; none when there is no grid.
std::vector<Cell> GridCells(const std::string& text);
// The blocks of an SVG, from their tooltips; those that stand for blocks left out have the label "...".
std::vector<Cell> SvgCells(const std::string& svg);

// "0-3,8" as numbers; nothing when the list is shortened.
std::optional<std::set<int64_t>> Devices(std::string_view label);

// Columns of the longest line.
size_t Columns(const std::string& text);

// An element of an XML document.
struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // directly behind the tag, entities resolved
  int parent = -1;

  int64_t number(const std::string& attribute) const { return std::stoll(attributes.at(attribute)); }
};

// Every element of a well-formed document in the order of their tags, or what is wrong with it in `error`: tags that do
// not match, attributes without quotes or repeated, stray '<' and '&', more than one root.
std::vector<Element> ParseXml(const std::string& text, std::string& error);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PLANNER_REPORT_READ_PICTURE_H_
