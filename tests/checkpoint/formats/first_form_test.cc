// torch.save's first form, put together by hand: what it holds, and what is refused. Files that PyTorch writes:
// pytorch/torch_save_test.py.
#include "checkpoint/formats/torch_save/first_form.h"

#include <string>
#include <vector>

#include "reshard/checkpoint/catalog.h"
#include "tests/catch.h"
#include "tests/checkpoint/formats/pickle_bytes.h"
#include "tests/checkpoint/io/staged_job.h"
#include "tests/checkpoint/io/temp_directory.h"

namespace reshard {
namespace {

using namespace testing::pickled;  // NOLINT(google-build-using-namespace): the words of a pickle

struct Form {
  std::string magic = Pickled("\x8a\x0a" + std::string("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10));
  int64_t protocol = 1001;
  std::string description;
  std::vector<std::string> keys = {"7"};
  std::string storages = Little(3, 8) + std::string(12, 'x');
  std::string after = {};

  std::string Bytes() const {
    std::vector<std::string> texts;
    for (const std::string& key : keys) texts.push_back(Str(key));
    return magic + Pickled(Num(protocol)) + Pickled(Dict({{Str("little_endian"), "\x89"}})) + Pickled(description) +
           Pickled(List(texts)) + storages + after;
  }
};

std::string StorageOf(const std::string& key, int64_t elements, const std::string& type = "FloatStorage",
                      const std::string& view = None()) {
  return Tuple({Str("storage"), Global("torch", type), Str(key), Str("cpu"), Num(elements), view}) + "Q";
}
std::string TensorOf(const std::string& storage, int64_t offset, const std::vector<int64_t>& shape) {
  return Call(Global("torch._utils", "_rebuild_tensor_v2"),
              {storage, Num(offset), Ints(shape), Ints(std::vector<int64_t>(shape.size(), 1)), "\x89", None()});
}

absl::StatusOr<Catalog> ReadBytes(const std::string& bytes) {
  const testing::TempDirectory directory;
  testing::PutContent(directory.path(), {{"state.pt", bytes}});
  return ReadCatalog(directory / "state.pt");
}

void Refuses(const Form& form, const std::string& part, absl::StatusCode code = absl::StatusCode::kDataLoss) {
  const absl::Status status = ReadBytes(form.Bytes()).status();
  INFO(status.ToString());
  CHECK(status.code() == code);
  CHECK(std::string(status.message()).find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("first form: tensors lie behind the pickles, views of storages within them") {
  Form form;
  form.description =
      Dict({{Str("w"), TensorOf(StorageOf("7", 3), 0, {3})},
            {Str("v"), TensorOf(StorageOf("7", 3, "FloatStorage", Tuple({Str("8"), Num(1), Num(2)})), 1, {1})}});
  const std::string bytes = form.Bytes();
  CHECK(torch_save::IsFirstForm(bytes.substr(0, 64)));
  const absl::StatusOr<Catalog> catalog = ReadBytes(bytes);
  INFO(catalog.status());
  REQUIRE(catalog.ok());
  REQUIRE(catalog->tensors().size() == 2);
  const auto end = static_cast<int64_t>(bytes.size());
  CHECK(catalog->chunk(*catalog->FindTensor("w"), 0).place.at == end - 12);
  CHECK(catalog->chunk(*catalog->FindTensor("v"), 0).place.at == end - 4);
  // A class with its source stands for itself.
  form.description =
      Dict({{Str("w"), TensorOf(StorageOf("7", 3), 0, {3})},
            {Str("net"), Tuple({Str("module"), Global("nets", "Net"), Str("nets.py"), Str("class Net")}) + "Q" +
                             std::string(")\x81", 2)}});
  const absl::StatusOr<Catalog> with_class = ReadBytes(form.Bytes());
  REQUIRE(with_class.ok());
  REQUIRE(with_class->attributes().size() == 1);
  CHECK(with_class->attributes()[0].Label() == "net (an object of nets.Net)");
}

TEST_CASE("first form: what contradicts itself") {
  Form good;
  good.description = Dict({{Str("w"), TensorOf(StorageOf("7", 3), 0, {3})}});
  REQUIRE(ReadBytes(good.Bytes()).ok());
  const auto with = [&](const auto& change) {
    Form form = good;
    change(form);
    return form;
  };
  Refuses(with([](Form& f) { f.protocol = 1000; }), "another version than 1001");
  Refuses(with([](Form& f) { f.keys = {}; }), "the list of storages has no \"7\"");
  Refuses(with([](Form& f) { f.keys = {"8"}; }), "does not mention the storage \"8\"");
  Refuses(with([](Form& f) {
            f.keys = {"7", "7"};
            f.storages += f.storages;
          }),
          "appears twice");
  Refuses(with([](Form& f) { f.storages = Little(4, 8) + std::string(16, 'x'); }), "has 4 elements, not 3");
  Refuses(with([](Form& f) { f.storages = Little(3, 8) + std::string(11, 'x'); }), "the file ends in the storage");
  Refuses(with([](Form& f) { f.storages = "abc"; }), "the file ends in the storage");
  Refuses(with([](Form& f) { f.after = "x"; }), "1 bytes behind the last storage");
  Refuses(with([](Form& f) { f.description = TensorOf(StorageOf("7", int64_t{1} << 62), 0, {3}); }), "the file ends");
  Refuses(with([](Form& f) { f.description = TensorOf(StorageOf("7", 3), 1, {3}); }), "leave a storage of 3");
  Refuses(with([](Form& f) {
            f.description =
                Tuple({TensorOf(StorageOf("7", 3), 0, {3}), TensorOf(StorageOf("7", 3, "LongStorage"), 0, {3})});
          }),
          "contradicts itself about the storage");
  Refuses(with([](Form& f) { f.description = TensorOf(StorageOf("7", 3, "OddStorage"), 0, {3}); }), "no known size",
          absl::StatusCode::kUnimplemented);
  Refuses(with([](Form& f) { f.description = "("; }), "the description at byte");
}

}  // namespace reshard
