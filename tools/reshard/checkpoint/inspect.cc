// reshard inspect CHECKPOINT: lists its tensors and byte items.
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/report.h"
#include "tools/reshard/checkpoint/listing_text.h"
#include "tools/reshard/checkpoint/what_is_meant.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/printable.h"
#include "tools/reshard/terminal.h"

namespace reshard::tool {
namespace {

struct InspectCommand {
  std::string checkpoint, tensor;
  bool json = false, chunks = false;
};

// Reports what in the listing cannot be taken as it is. Returns an exit code, kOk if all can.
int SayWhatIsWrong(const Listing& listing) {
  constexpr size_t kShown = 10;
  const Catalog& catalog = *listing.catalog;
  int code = kOk;
  if (!catalog.incomplete().empty()) {
    code = Fail(kBadInput, absl::StrCat("this is not all of a checkpoint: ", catalog.incomplete()));
  }
  size_t unreadable = 0;
  for (const Catalog::Tensor* const tensor : listing.tensors) {
    if (tensor->dtype || ++unreadable > kShown) continue;
    code = Fail(kBadInput, absl::StrCat("tensor ", Printable(tensor->name), ": elements of type ",
                                        Printable(tensor->stored_dtype), " cannot be read; exclude it to go on"));
  }
  if (unreadable > kShown) {
    Fail(kBadInput, absl::StrCat(unreadable - kShown, " more tensors of types that cannot be read"));
  }
  for (size_t i = 0; i < catalog.rank_local().size() && i < kShown; ++i) {
    const Catalog::RankLocal& one = catalog.rank_local()[i];
    Note(absl::StrCat("reshard: ", Printable(one.name), " differs between the files of ranks; it is listed as ",
                      Printable(one.names[0]), ", ..."));
  }
  return code;
}

int RunInspect(const InspectCommand& state) {
  SayWhatIsMeant(state.checkpoint);
  auto catalog = ReadCatalog(state.checkpoint);
  if (!catalog.ok()) return FailCheckpoint(catalog.status());
  Listing listing = List(*catalog, state.tensor);
  if (state.tensor.empty()) {
    auto beside = FindAuxiliaryFiles(state.checkpoint, *catalog);
    if (!beside.ok()) return FailCheckpoint(beside.status());
    listing.beside = *std::move(beside);
  }
  auto layouts = ReadRecordedLayouts(*catalog);
  const bool known = layouts.ok();
  if (known) {
    listing.layouts = *std::move(layouts);
  } else {
    // A bad sidecar makes layouts unknown, but what the checkpoint itself says is still worth seeing.
    Fail(kBadInput, absl::StrCat(layouts.status().message(), "; no layouts are shown"));
  }
  const std::string out = state.json ? ListingToJson(listing, state.chunks) : ListingText(listing, state.chunks);
  if (const int code = Print(out); code != kOk) return code;
  const int code = SayWhatIsWrong(listing);
  return known ? code : kBadInput;
}

}  // namespace

Action AddInspect(CLI::App& app) {
  auto state = std::make_shared<InspectCommand>();
  CLI::App& inspect = *app.add_subcommand("inspect", "List the contents of a checkpoint");
  inspect.group(kOfCheckpoints);
  inspect
      .add_option("CHECKPOINT", state->checkpoint,
                  "a directory (DCP, safetensors, .bin or .pt files of ranks), a file (safetensors, torch.save), or an "
                  "https URL")
      ->required()
      ->type_name("PATH|URL");
  inspect.option_defaults()->group("Output");
  inspect.add_option("--tensor", state->tensor, "list only names that match (* is any text, ? one character)")
      ->type_name("PATTERN");
  inspect.add_flag("--chunks", state->chunks, "also list the chunks of every tensor");
  inspect.add_flag("--json", state->json, "print one JSON object (reshard.inspect/1)");
  inspect.footer(
      "# What is in it, and how it is cut\n"
      "reshard inspect step-1000\n"
      "reshard inspect step-1000 --tensor '*norm*' --chunks\n");
  return [state] { return RunInspect(*state); };
}

}  // namespace reshard::tool
