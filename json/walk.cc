#include "json/walk.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "layout/names.h"
#include "status/no_throw.h"

namespace reshard::json {
namespace {

using Json = nlohmann::json;

// Takes the events of the parser. path_ has one step for every container that is open: where in it we are.
class Walker final : public nlohmann::json_sax<Json> {
 public:
  Walker(int64_t depth, Visitor visit) : depth_(depth), visit_(visit) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Scalar({}); }
  bool boolean(bool value) override { return Scalar({.kind = WalkedValue::Kind::kBool, .boolean = value}); }
  // The parser calls this for numbers with a minus sign only.
  bool number_integer(number_integer_t value) override {
    return Scalar({.kind = WalkedValue::Kind::kNegative, .integer = value});
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
      return Scalar({.kind = WalkedValue::Kind::kLarge, .large = value});
    }
    return Scalar({.kind = WalkedValue::Kind::kInteger, .integer = static_cast<int64_t>(value)});
  }
  bool number_float(number_float_t value, const string_t&) override {
    return Scalar({.kind = WalkedValue::Kind::kFraction, .fraction = value});
  }
  bool string(string_t& value) override { return Scalar({.kind = WalkedValue::Kind::kString, .text = &value}); }
  bool binary(binary_t&) override { return Fail(absl::InternalError("binary values are not JSON")); }

  bool start_object(size_t) override {
    if (!Visit({.kind = WalkedValue::Kind::kObject}) || !Open(-1)) return false;
    // Sets are kept for the next object at this depth, so that small objects cost no allocation.
    if (keys_.size() < path_.size()) keys_.resize(path_.size());
    keys_[path_.size() - 1].clear();
    return true;
  }
  bool key(string_t& key) override {
    if (!keys_[path_.size() - 1].insert(key).second) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("the key \"", layout::Printable(key), "\" appears twice")));
    }
    path_.back().key = std::move(key);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Visit({.kind = WalkedValue::Kind::kArray}) && Open(0); }
  bool end_array() override { return Close(); }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    // "[json.exception...] parse error at line 1, column 2: syntax error while ... - ...; last read: '...'"
    std::string_view reason = error.what();
    if (const size_t at = reason.find("syntax error"); at != reason.npos) reason.remove_prefix(at);
    if (const size_t at = reason.find("; last read"); at != reason.npos) reason = reason.substr(0, at);
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("not JSON at byte ", position, ": ", std::string(reason.substr(0, 200)))));
  }

 private:
  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Visit(const WalkedValue& value) {
    status_ = visit_(path_, value);
    return status_.ok();
  }
  bool Scalar(const WalkedValue& value) { return Visit(value) && Next(); }
  // A value is complete: in an array the next one follows.
  bool Next() {
    if (!path_.empty() && path_.back().index >= 0) ++path_.back().index;
    return true;
  }
  bool Open(int64_t index) {
    if (static_cast<int64_t>(path_.size()) >= depth_) {
      return Fail(absl::ResourceExhaustedError(
          absl::StrCat("arrays and objects are nested more than ", depth_, " deep, the most that is allowed")));
    }
    path_.push_back({.key = {}, .index = index});
    return true;
  }
  bool Close() {
    path_.pop_back();
    return Next();
  }

  const int64_t depth_;
  const Visitor visit_;
  std::vector<PathStep> path_;
  std::vector<absl::flat_hash_set<std::string>> keys_;  // seen, by depth
  absl::Status status_;
};

}  // namespace

absl::Status Walk(std::string_view text, int64_t depth, Visitor visit) {
  // The parser takes one for the end of the text, and would not look at what follows.
  if (const size_t at = text.find('\0'); at != text.npos) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON at byte ", at + 1, ": a NUL byte"));
  }
  return status::NoThrow("reading JSON", [&] {
    Walker walker(depth, visit);
    Json::sax_parse(text.begin(), text.end(), &walker);
    return walker.status();
  });
}

}  // namespace reshard::json
