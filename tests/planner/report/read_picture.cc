#include "tests/planner/report/read_picture.h"

#include <algorithm>
#include <sstream>

namespace reshard::testing {
namespace {

using Line = std::vector<std::string>;  // one string a character

std::vector<Line> Lines(const std::string& text) {
  std::vector<Line> lines(1);
  for (char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) {
      lines.back().back() += c;
    } else {
      lines.back().emplace_back(1, c);
    }
  }
  return lines;
}

std::string Between(const Line& line, size_t begin, size_t end) {
  std::string out;
  for (size_t i = begin; i < std::min(end, line.size()); ++i) out += line[i];
  out.erase(0, std::min(out.find_first_not_of(' '), out.size()));
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

int64_t NumberAt(const Line& line, size_t begin) {
  size_t end = begin;
  while (end < line.size() && line[end] != " ") ++end;
  return std::stoll(Between(line, begin, end));
}

// The number behind `word` in `text`, or -1.
int DimAfter(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? -1 : std::stoi(text.substr(at + word.size()));
}

bool IsName(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == ':'; }

}  // namespace

std::vector<Cell> GridCells(const std::string& text) {
  const std::vector<Line> lines = Lines(text);
  std::vector<Cell> cells;
  for (size_t top = 0; top < lines.size(); ++top) {
    std::vector<size_t> edges;
    for (size_t i = 0; i < lines[top].size(); ++i) {
      const std::string& c = lines[top][i];
      if (c == "┌" || c == "┬" || c == "┐") edges.push_back(i);
    }
    if (edges.empty()) continue;

    // Above it "rows: dim 0, columns: dim 1" and the ticks; or "dim 0" with ticks above or at the side; or nothing.
    const bool side = edges.front() > 0;
    int row_dim = -1;
    int col_dim = -1;
    const std::string above = Between(lines[top - 1], 0, 1000);
    if (above.substr(0, 4) == "dim ") {
      row_dim = DimAfter(above, "dim ");
    } else if (!above.empty()) {
      const std::string names = Between(lines[top - 2], 0, 1000);
      row_dim = DimAfter(names, "rows: dim ");
      col_dim = row_dim < 0 ? DimAfter(names, "dim ") : DimAfter(names, "columns: dim ");
    }
    for (size_t line = top;
         line + 2 < lines.size() && lines[line + 1].size() > edges[0] && lines[line + 1][edges[0]] == "│"; line += 2) {
      for (size_t j = 0; j + 1 < edges.size(); ++j) {
        Cell cell;
        cell.label = Between(lines[line + 1], edges[j] + 1, edges[j + 1]);
        if (row_dim >= 0 && side) {
          cell.where[row_dim] = {std::stoll(Between(lines[line], 0, edges[0])),
                                 std::stoll(Between(lines[line + 2], 0, edges[0]))};
        }
        if (col_dim >= 0)
          cell.where[col_dim] = {NumberAt(lines[top - 1], edges[j]), NumberAt(lines[top - 1], edges[j + 1])};
        cells.push_back(cell);
      }
    }
  }
  return cells;
}

std::vector<Cell> SvgCells(const std::string& svg) {
  std::string error;
  std::vector<Cell> cells;
  for (const Element& element : ParseXml(svg, error)) {
    if (element.name != "title") continue;
    const size_t end = std::min(element.text.find(", dim "), element.text.size());
    std::istringstream head(element.text.substr(0, end));
    std::string word;
    std::string devices;
    head >> word >> devices;
    Cell cell;
    if (word == "blocks") {
      cell.label = "...";
    } else if (word == "device" || word == "devices") {
      cell.label = devices;
    } else {
      continue;
    }
    for (size_t at = end; at < element.text.size();
         at = std::min(element.text.find(", dim ", at + 1), element.text.size())) {
      const std::string part = element.text.substr(at);
      const size_t comma = part.find(',', part.find('['));
      cell.where[DimAfter(part, "dim ")] = {std::stoll(part.substr(part.find('[') + 1)),
                                            std::stoll(part.substr(comma + 1))};
    }
    cells.push_back(cell);
  }
  return cells;
}

std::optional<std::set<int64_t>> Devices(std::string_view label) {
  if (label.find('.') != std::string_view::npos) return std::nullopt;
  std::set<int64_t> out;
  std::istringstream in{std::string(label)};
  std::string part;
  while (std::getline(in, part, ',')) {
    const size_t dash = part.find('-');
    const int64_t first = std::stoll(part);
    const int64_t last = dash == std::string::npos ? first : std::stoll(part.substr(dash + 1));
    for (int64_t device = first; device <= last; ++device) out.insert(device);
  }
  return out;
}

size_t Columns(const std::string& text) {
  size_t columns = 0;
  for (const Line& line : Lines(text)) columns = std::max(columns, line.size());
  return columns;
}

std::vector<Element> ParseXml(const std::string& text, std::string& error) {
  std::vector<Element> elements;
  std::vector<int> open;
  const auto fail = [&](const std::string& what, size_t at) {
    error = what + " at " + std::to_string(at) + ": " + text.substr(at, 60);
    return elements;
  };
  // Resolves the entities of text[begin, end) or returns nothing.
  const auto resolve = [&](size_t begin, size_t end) -> std::optional<std::string> {
    static const std::map<std::string, char> kEntities = {
        {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&#39;", '\''}};
    std::string out;
    for (size_t i = begin; i < end; ++i) {
      if (text[i] == '<') return std::nullopt;
      if (text[i] != '&') {
        out += text[i];
        continue;
      }
      const size_t semicolon = text.find(';', i);
      if (semicolon >= end) return std::nullopt;
      const auto entity = kEntities.find(text.substr(i, semicolon + 1 - i));
      if (entity == kEntities.end()) return std::nullopt;
      out += entity->second;
      i = semicolon;
    }
    return out;
  };

  size_t at = 0;
  while (at < text.size()) {
    if (text[at] != '<') {
      const size_t end = std::min(text.find('<', at), text.size());
      const std::optional<std::string> content = resolve(at, end);
      if (!content) return fail("bad text", at);
      if (open.empty() && content->find_first_not_of(" \n") != std::string::npos) return fail("text outside", at);
      if (!open.empty() && static_cast<size_t>(open.back()) + 1 == elements.size()) elements.back().text += *content;
      at = end;
      continue;
    }
    const size_t tag = at++;
    const bool closing = text[at] == '/';
    if (closing) ++at;
    std::string name;
    while (at < text.size() && IsName(text[at])) name += text[at++];
    if (name.empty()) return fail("no name", tag);
    if (closing) {
      if (text[at] != '>' || open.empty() || elements[open.back()].name != name) {
        return fail("unmatched end tag", tag);
      }
      open.pop_back();
      ++at;
      continue;
    }
    if (open.empty() && !elements.empty()) return fail("second root", tag);
    Element element;
    element.name = name;
    if (!open.empty()) element.parent = open.back();
    while (at < text.size() && text[at] == ' ') {
      ++at;
      std::string attribute;
      while (at < text.size() && IsName(text[at])) attribute += text[at++];
      if (attribute.empty() || text.compare(at, 2, "=\"") != 0) return fail("bad attribute", tag);
      const size_t end = text.find('"', at + 2);
      if (end == std::string::npos) return fail("open attribute", tag);
      const std::optional<std::string> value = resolve(at + 2, end);
      if (!value) return fail("bad attribute value", tag);
      if (!element.attributes.emplace(attribute, *value).second) return fail("repeated attribute", tag);
      at = end + 1;
    }
    const bool empty = text.compare(at, 2, "/>") == 0;
    if (!empty && text[at] != '>') return fail("open tag", tag);
    at += empty ? 2 : 1;
    elements.push_back(std::move(element));
    if (!empty) open.push_back(static_cast<int>(elements.size()) - 1);
  }
  if (!open.empty() || elements.empty()) return fail("document ends early", 0);
  return elements;
}

}  // namespace reshard::testing
