#!/usr/bin/env bash
# From a fresh clone to the main jobs: sets up, builds the command, makes a Hugging Face model from a training checkpoint,
# plans a 70B model on four nodes, and moves real data. A few minutes the first time, nearly all of it compilation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake --preset core >/dev/null
cmake --build --preset core --target reshard
place=build/quickstart
rm -rf "$place"
mkdir -p "$place"
export PATH=$PWD/build/core/bin:$PATH

# Prints a command as one would type it, then runs it.
show() {
  echo
  local word line='$'
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./=:-]+$ ]] || word="'$word'"
    line+=" $word"
  done
  echo "$line"
  "$@" </dev/null
}

echo
echo "== A training checkpoint, as FSDP saves it on four ranks, becomes what from_pretrained loads"
show examples/toy_checkpoint/make.py "$place/step-1000"
show reshard convert "$place/step-1000" "$place/exported" --to hf --verify

echo
echo "== Llama 3 70B from FSDP to tensor parallelism, on four nodes of eight H100"
show reshard plan examples/models/llama3_70b.json --mesh '{dp:4,tp:8}' --from fsdp --to tp:llama --topology dgx-h100 \
  --html "$place/llama3_70b.html"

echo
echo "== One tensor: two mesh axes change places on 256 devices, and why by this plan"
show reshard plan '{dp:16,tp:16}' '[<dp,tp>4096, 4096]' '[<tp,dp>4096, 4096]' --explain --svg "$place/order.svg"

echo
echo "== Real data between eight threads, every element checked"
show reshard run '{dp:2,tp:4}' '[<dp,tp>4096, 1024]' '[4096, <tp,dp>1024]' --verify

echo
echo "Look at $PWD/$place/llama3_70b.html and order.svg in a browser."
echo "Next: tools/test.sh runs the tests; export PATH=$PWD/build/core/bin:\$PATH, then reshard --help; README.md has the other jobs."
