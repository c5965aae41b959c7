#include "checkpoint/source/source.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/catalog/stored_elements.h"
#include "checkpoint/source/asked.h"
#include "checkpoint/source/read_box.h"
#include "checkpoint/source/state.h"
#include "checkpoint/source/unwrap.h"
#include "checkpoint/stores/url.h"
#include "checkpoint/tasks/run_tasks.h"
#include "checkpoint/views/node_hash.h"
#include "checkpoint/views/read_view.h"
#include "status/macros.h"

namespace reshard::source {
namespace {

// The recipe as it is for this catalog: with the wrappers that come off its names.
absl::StatusOr<Recipe> RecipeFor(const Catalog& catalog, const SourceOptions& options) {
  Recipe recipe = options.recipe;
  if (options.unwrap) {
    ASSIGN_OR_RETURN(recipe.selection.wrappers, FindWrappersFor(recipe, catalog));
  }
  RETURN_IF_ERROR(CheckAsked(recipe, catalog));
  return recipe;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> Source::Open(const std::string& path, const SourceOptions& options) {
  auto state = std::make_unique<State>();
  ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(path, options.limits));
  ASSIGN_OR_RETURN(const Recipe recipe, RecipeFor(catalog, options));
  state->wrappers = recipe.selection.wrappers;
  ASSIGN_OR_RETURN(state->catalog, Select(std::move(catalog), recipe.selection, &state->not_selected));
  state->checks = options.checks;
  int64_t chunks = 0;
  absl::flat_hash_map<std::pair<int32_t, int64_t>, size_t> record_check;
  for (const Catalog::Tensor& tensor : state->catalog.tensors()) {
    RETURN_IF_ERROR(state->catalog.CheckCover(tensor));
    state->first_chunk.push_back(chunks);
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const catalog::StoredElements* const known = state->catalog.StoredAs(tensor, i);
      if (known == nullptr) break;  // then it is so for all chunks
      const std::pair record(state->catalog.chunk(tensor, i).place.file, known->record_at);
      state->check_of.push_back(record_check.try_emplace(record, static_cast<size_t>(chunks + i)).first->second);
    }
    chunks += tensor.num_chunks;
  }
  RETURN_IF_ERROR(state->CheckAnnounced());
  state->checked = std::vector<std::atomic<char>>(static_cast<size_t>(chunks));
  state->items_checked = std::vector<std::atomic<char>>(state->catalog.byte_items().size());
  {
    const status::MutexLock lock(state->mutex);
    state->indices.resize(state->catalog.tensors().size());
  }
  if (!recipe.only_selects()) {
    ASSIGN_OR_RETURN(state->applied, views::Apply(recipe, state->catalog));
    if (state->checks == ChunkChecks::kBegun) state->checks = ChunkChecks::kAll;
  }
  RETURN_IF_ERROR(CheckAskedCasts(recipe, state->applied ? state->applied->catalog : state->catalog));
  if (!options.ignore_sidecar) {
    RETURN_IF_ERROR(state->FindSidecar(options.limits));
  }
  return std::unique_ptr<Source>(new Source(std::move(state)));
}

Source::Source(std::unique_ptr<State> state) : state_(std::move(state)) {}
Source::~Source() = default;

const Catalog& Source::catalog() const { return state_->applied ? state_->applied->catalog : state_->catalog; }
const Catalog& Source::stored() const { return state_->catalog; }
const std::vector<LeftOut>& Source::not_selected() const { return state_->not_selected; }
const std::vector<views::View>* Source::views() const { return state_->applied ? &state_->applied->views : nullptr; }
const std::optional<Sidecar>& Source::sidecar() const { return state_->sidecar; }
const std::vector<Wrapper>& Source::wrappers() const { return state_->wrappers; }
void Source::AddViews(hash::Digest* digest) const {
  if (views() == nullptr) return;
  for (const views::View& view : *views()) {
    digest->Add(view.stored);
    if (view.node) views::AddTo(*view.node, digest);
  }
}

int Source::ReadThreads(int asked, int most) const {
  const std::string scheme = stores::SchemeOf(state_->catalog.root());
  if (asked == 0 && !scheme.empty() && scheme != "https") return kThreadsForStores;
  return tasks::ThreadCount(asked, most);
}

int64_t Source::bytes_read() const { return state_->bytes_read; }

absl::Status Source::Read(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                          absl::Span<char> out) {
  if (!state_->applied) return ReadStored(tensor, offset, size, out);
  const views::View& view = state_->applied->views[tensor];
  if (!view.node) return ReadStored(view.stored, offset, size, out);
  return views::ReadView(
      *view.node, offset, size,
      [&](int64_t stored, absl::Span<const int64_t> from, absl::Span<const int64_t> extent, absl::Span<char> into) {
        return ReadStored(stored, from, extent, into);
      },
      out);
}

absl::Status Source::ReadStored(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size,
                                absl::Span<char> out) {
  State& state = *state_;
  const int64_t element = SizeOf(*state.catalog.tensors()[tensor].dtype);
  const Box box{{offset.begin(), offset.end()}, {size.begin(), size.end()}};
  std::string part;
  for (const int64_t number : state.Index(tensor)->Overlapping(offset, size)) {
    ASSIGN_OR_RETURN(const Overlap overlap, state.OverlapOf(tensor, number, box));
    const Indices& extent = overlap.box.size;
    const bool is_all = extent == box.size;
    if (!is_all) part.resize(overlap.bytes);
    const absl::Span<char> into = is_all ? out : absl::MakeSpan(part);
    const bool checks = state.Wants(tensor, overlap);
    if (checks && overlap.is_whole && State::IsItsRecord(overlap)) {
      RETURN_IF_ERROR(state.ReadWhole(tensor, overlap, into));
    } else {
      if (checks) RETURN_IF_ERROR(state.Check(tensor, overlap));
      RETURN_IF_ERROR(ReadBox(*overlap.file, *overlap.stream, overlap.within, extent, into));
    }
    if (is_all) return absl::OkStatus();
    CopyBox(overlap.box, {overlap.box, part.data()}, {box, out.data()}, element);
  }
  return absl::OkStatus();
}

std::vector<Source::BoxOfChunk> Source::CutAlongChunks(int64_t tensor, const Box& box) {
  int64_t stored = tensor;
  if (state_->applied) {
    const views::View& view = state_->applied->views[tensor];
    if (view.node) return {{box, false, false}};
    stored = view.stored;
  }
  const int64_t element = SizeOf(*state_->catalog.tensors()[stored].dtype);
  std::vector<BoxOfChunk> boxes;
  for (const int64_t number : state_->Index(stored)->Overlapping(box.offset, box.size)) {
    const Box chunk = state_->ChunkBox(stored, number);
    Box common = Common(chunk, box);
    const bool is_whole = common == chunk;
    const bool is_compared = state_->Wants(stored, number, /*begins=*/common.offset == chunk.offset);
    // A large chunk is better shared by several threads, unless one has to read all of it to compare it.
    const bool is_large = chunk.Elements() * element > catalog::kLargestBox;
    const bool at_once =
        is_large ? is_compared && state_->IsReadThrough(stored, number, common) : is_whole || is_compared;
    boxes.push_back({std::move(common), is_whole, at_once});
  }
  return boxes;
}

absl::Status Source::ReadItem(int64_t item, int64_t from, absl::Span<char> out) {
  const Catalog::ByteItem& entry = state_->catalog.byte_items()[item];
  const absl::StatusOr<std::shared_ptr<io::ReadFile>> file = state_->File(entry.place.file);
  if (!file.ok()) return file.status();
  RETURN_IF_ERROR(state_->CheckItem(static_cast<size_t>(item), **file));
  return (*file)->ReadAt(entry.place.at + from, out);
}

}  // namespace reshard::source
