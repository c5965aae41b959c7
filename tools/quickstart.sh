#!/usr/bin/env bash
# From a fresh clone to the main job: sets up, builds the command, plans, draws, and moves real data between in-process
# devices. A few minutes the first time, most of it compilation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake --preset core >/dev/null
cmake --build --preset core --target reshard
reshard=build/core/bin/reshard
pictures=build/quickstart
mkdir -p "$pictures"

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
echo "== Three changes of the device order on 256 devices: one AllPermute each, nothing is gathered"
mesh='{X:4,Y:4,Z:16}'
show "$reshard" plan "$mesh" '[32<X,Y>512, 128]' '[32<Y,X>512, 128]' --svg "$pictures/order.svg"
show "$reshard" plan "$mesh" '[128<Y>512, 32<X>128]' '[128<X>512, 32<Y>128]' --svg "$pictures/swap.svg"
show "$reshard" plan "$mesh" '[32<X,Y>512, 128]' '[32<Z>512, 128]' --svg "$pictures/axes.svg"

echo
echo "== A tensor of 1 GiB from tensor parallel to fully sharded along the other dimension, and why this plan"
show "$reshard" plan '{dp:16,tp:8}' '[<tp>16384, 32768]' '[16384, <dp,tp>32768]' --explain --svg "$pictures/fsdp.svg"

echo
echo "== Who holds what"
show "$reshard" show '{X:2,Y:4}' '[<X,Y>4096, 1024]' --svg "$pictures/layout.svg"

echo
echo "== The same on real data: 8 in-process devices, every element checked"
show "$reshard" run '{X:2,Y:4}' '[<X,Y>4096, 1024]' '[4096, <Y,X>1024]' --verify

echo
echo "Pictures:"
printf '  %s\n' "$PWD/$pictures"/*.svg
echo "Next: $reshard --help, README.md, tools/test.sh"
