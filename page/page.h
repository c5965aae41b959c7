// An HTML document that needs no network: a template, and the data that its scripts show.
#ifndef RESHARD_PAGE_PAGE_H_
#define RESHARD_PAGE_PAGE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace reshard::page {

// The size, in bytes, that a document stays below if its content can be shown in less detail.
inline constexpr size_t kMostBytes = 1'000'000;

// The document titled `title` about `data`, the text of a JSON object whose "kind" says which page it is ("plan",
// "layout", "batch" or "check"). Both may hold any text: nothing in them is markup.
std::string Document(std::string_view title, std::string_view data);

}  // namespace reshard::page

#endif  // RESHARD_PAGE_PAGE_H_
