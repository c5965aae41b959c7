#include "tools/reshard/help/topics.h"

namespace reshard::help {
namespace {

constexpr std::string_view kLayouts = R"(A layout says, for each dimension, its size and the mesh axes that shard it,
the major one first. Axes that appear nowhere replicate the tensor.

  [<X,Y>512, 128]        rows sharded over X, each part over Y
  [<Y,X>512, 128]        the same blocks in another device order
  [512, <X>128]          columns over X, replicated along Y
  [<X>512, 128] sum<Y>   partial: devices along Y hold the terms of a sum
  [<2,X>512]             block-cyclic: two blocks, each sharded over X
  [<2,~X>512]            zigzag: the second block in reverse
  [<X=[300,212]>512]     explicit sizes
  [<X:(1)2>512]          a sub-axis: X read as the digits (1, 2, ...)

Printed layouts begin a sharded dimension with the size of the largest shard:
[64<X,Y>512, 128]. Rules leave sizes out where --shape or a checkpoint has them:
[<tp>, *] is for two dimensions, [<tp>, ...] for any number.

  reshard show '{X:2,Y:2}' '[<X,Y>8, 4]'
)";

constexpr std::string_view kMeshes = R"(A mesh is named axes with sizes, the slowest first: {dp:8,tp:4} is 32 devices,
and device 5 is dp 1, tp 1. {dp=8,tp=4} is the same.

  {X:4}@8            ids 8 to 11 instead of 0 to 3
  {X:2}@[7,3]        ids in any order
  {}                 one device

Source and target may be on two meshes, of any shapes, overlapping or disjoint:

  reshard plan '{dp:4}' '[<dp>64, 8]' '[64, <tp>8]' --to-mesh '{tp:2}@4'
)";

constexpr std::string_view kNotations =
    R"text(Layouts of other programs are read with --format (--from-format, --to-format),
and need --shape, since they have no sizes:

  dtensor   S(0)[1]S(0)[0]R, or Shard(0), Replicate(), Partial(sum)
  jax       PartitionSpec('y', None, ('x', 'y')), or P(...)
  shardy    #sdy.sharding<@mesh, [{"x"}, {"y":(1)2}]>
  hlo       {devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}

  reshard show '{dp:2,tp:2}' "P(('tp','dp'))" --format jax --shape 8x4

They are read exactly or not at all: where axes cut unevenly, frameworks differ.
)text";

constexpr std::string_view kTopologies =
    R"(What a network costs decides between plans of the same bytes. --topology is flat
(all devices equally far), dgx-a100, dgx-h100, dgx-h200, dgx-b200, gb200 (racks
of 72), mi300x, pcie, cpu, or a JSON file with the levels from the inside out,
each but the last with the devices of a domain:

  {"levels": [{"devices": 8, "gb_per_s": 400, "latency_us": 3},
              {"gb_per_s": 50, "latency_us": 12, "nics": 4}]}

nics is how many links a domain has (default: one per device). Ids decide which
devices share a domain; --nodes 8x8 says it in place of the topology. The plan
says how domains fall on the mesh.

  reshard plan '{dp:8,tp:8}' '[<dp>64, 64]' '[64, <tp>64]' --topology dgx-h100
)";

constexpr std::string_view kBatches = R"(--batch reads one problem per line, as JSON, and prints one plan per line:

  {"id": "wq", "mesh": "{X:4}", "from": "[<X>64, 8]", "to": "[64, <X>8]"}
  {"id": "wo", "mesh": "{X:4}", "from": "[<X>8, 64]", "to": "[8, 64]"}

Also dtype, shape, to_mesh, from_format and to_format, as the flags. With
--coalesce all tensors go as one schedule: equal ones are planned once, they
share exchanges, and replicas share the sending.

  reshard plan --batch problems.jsonl --coalesce --memory-limit 1GiB
)";

constexpr std::string_view kCheckpoints =
    R"(Read: directories of PyTorch's distributed checkpoints (.distcp), safetensors
with or without an index, Hugging Face's .bin sets, files of torch.save (.pt,
.pth, .ckpt, .bin), one file per rank with DTensors, DeepSpeed, Megatron's
legacy format; with Python packages Orbax, Zarr, GGUF, HDF5, NumPy. On disk, at
https or in an object store (s3://, gs://, az://, hf://).
Written: dcp, safetensors, and orbax for JAX; --to hf is what from_pretrained
loads: weights alone, under the names of the bare model, with an index.

A file that is only a part of a checkpoint (an index, .metadata, one shard of
several) means the checkpoint.

Nothing in a file is ever executed. Values that are not plain data are listed,
and never passed on. Results appear at once and whole; the same
command continues a run that was interrupted.

  reshard inspect step-1000
  reshard convert step-1000 exported --to hf
)";

constexpr std::string_view kRules = R"(A conversion to dcp needs to know how tensors are cut: one rule for all, with
--mesh and --layout, or a file with patterns, the first of which counts:

  {"mesh": "{tp:8}",
   "layouts": [["*.wq.weight", "[<tp>, *]"],
               ["*.wo.weight", "[*, <tp>]"],
               ["*", "[...]"]]}

* in a name is any text, ? one character. In a layout, * is a dimension that is
not sharded, ... all that are left.

  reshard convert step-1000 serving --rules rules.json
)";

constexpr std::string_view kRecipes = R"(A recipe makes other tensors of those that are there: fused, split, stacked,
transposed, padded, cast.

  {"schema": "reshard.recipe/1",
   "tensors": [{"to": "{p*}.qkv_proj.weight",
                "from": {"concatenate": ["{p*}.q_proj.weight",
                                         "{p*}.k_proj.weight",
                                         "{p*}.v_proj.weight"]}}],
   "keep": ["*"]}

{p*} is any text, {l} a number. What no rule uses must be in keep or drop:
nothing is lost without a word. --dry-run prints what each tensor is made of,
--invert runs a recipe backwards, verify --recipe compares what it made.

  reshard convert step-1000 fused --to hf --recipe recipe.json --dry-run
)";

constexpr std::string_view kMemory =
    R"(plan --memory-limit bounds what a device needs at once: source, target, what
lies between, and staging. Steps are cut into rounds where that helps; a limit
that no plan keeps is refused with the least that is needed.

convert --memory-limit bounds this process, 1 GiB by default: buffers and all
that is known about the source. The summary has what was planned and the peak.

Sizes are 8192, 64KiB, 2GiB, 2Gi or 2G (powers of 1024), or 64kB, 2GB (of 1000).

  reshard plan '{X:4}' '[<X>64, 64]' '[64, <X>64]' --memory-limit 8KiB
)";

constexpr std::string_view kExitCodes = R"(0   success
1   it ran and found differences, or something has no place in the result
2   usage: an unknown flag, a bad value
3   no plan, or over a limit
4   bad input: malformed text, a damaged checkpoint
5   files: missing, in the way, unreadable, no space; a server that refuses
6   another worker or rank failed
70  an internal error
130 interrupted by Ctrl-C; 143 by SIGTERM, as the shell counts signals

Only data goes to standard output. Errors are one line on standard error, which
says what, where and what to do; --quiet leaves nothing else, --verbose says
more.
)";

constexpr std::string_view kEnvironment =
    R"(RESHARD_TIMEOUT_MS       how long to wait for another rank or worker that makes
                         no progress (default 600000)
RESHARD_HTTPS_TIMEOUT_S  seconds without a byte before a request is made again,
                         up to three times (default 30)
SSL_CERT_FILE            certificates to trust
HF_TOKEN                 sent to huggingface.co, and to nobody else
NO_COLOR                 if it is not empty: no bold or colored text
COLUMNS                  the width of help, where it is not a terminal's

The runtime of jobs has others: see docs/pytorch.md.
)";

}  // namespace

const std::vector<Topic>& Topics() {
  static const std::vector<Topic>* const topics = new std::vector<Topic>{
      {"layouts", "how a layout is written", kLayouts},
      {"meshes", "how a mesh is written", kMeshes},
      {"notations", "layouts of DTensor, JAX, Shardy and HLO", kNotations},
      {"topologies", "what a network costs", kTopologies},
      {"batches", "many problems in one run", kBatches},
      {"checkpoints", "which formats are read and written", kCheckpoints},
      {"rules", "how the tensors of a checkpoint are cut", kRules},
      {"recipes", "other tensors made of those that are there", kRecipes},
      {"memory", "limits, and how sizes are written", kMemory},
      {"exit-codes", "what the command returns", kExitCodes},
      {"environment", "variables that the command reads", kEnvironment},
  };
  return *topics;
}

}  // namespace reshard::help
