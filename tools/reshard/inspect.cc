// reshard inspect CHECKPOINT: what is in it.
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/listing.h"

namespace reshard::tool {
namespace {

struct State {
  std::string checkpoint, tensor;
  bool json = false, chunks = false;
};

int Run(const State& state) {
  auto catalog = ReadCatalog(state.checkpoint);
  if (!catalog.ok()) return FailCheckpoint(catalog.status());
  Listing listing = List(*catalog, state.tensor);
  auto layouts = ReadRecordedLayouts(*catalog);
  if (layouts.ok()) {
    listing.layouts = *std::move(layouts);
  } else {
    // What the checkpoint itself says is still worth seeing.
    Fail(kBadInput, absl::StrCat(layouts.status().message(), "; no layouts are shown"));
  }
  const std::string out = state.json ? ListingJson(listing, state.chunks) : ListingText(listing, state.chunks);
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
    return Fail(kIo, "cannot write to standard output");
  }
  return layouts.ok() ? kOk : kBadInput;
}

}  // namespace

Action AddInspect(CLI::App& app) {
  auto state = std::make_shared<State>();
  CLI::App& inspect = *app.add_subcommand("inspect", "List what a checkpoint holds");
  inspect.add_option("CHECKPOINT", state->checkpoint, "a directory (DCP or safetensors), or a safetensors file")
      ->required();
  inspect.add_option("--tensor", state->tensor, "only names that match: * any text, ? one character");
  inspect.add_flag("--chunks", state->chunks, "list the chunks of every tensor too");
  inspect.add_flag("--json", state->json, "one object, schema reshard.inspect/1");
  return [state] { return Run(*state); };
}

}  // namespace reshard::tool
