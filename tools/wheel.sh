#!/usr/bin/env bash
# Builds dist/reshard-*.whl, which runs where its libraries are not installed: the libraries that it needs beside glibc and
# libstdc++ are in it. Installs what is missing for that as tools/setup.sh does, and in build/wheel-tools (pip).
#   tools/wheel.sh           the command, and `import reshard` without PyTorch
#   tools/wheel.sh --torch   also the part for PyTorch, for the version in build/venv (tools/setup.sh --full)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

with_torch=false
case "${1:-}" in
  "") ;;
  --torch) with_torch=true ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "wheel: unknown option $1 (known: --torch)" >&2; exit 2 ;;
esac

tools/setup.sh --wheel
tools=build/wheel-tools
defines=(--config-settings=cmake.define.RESHARD_BUILD_TORCH=OFF)  # said, since the build folder remembers
for nvcc in "$PWD/$tools"/lib/python3*/site-packages/nvidia/cu*/bin/nvcc; do
  [[ ! -x $nvcc ]] || export CUDA_PATH=${nvcc%/bin/nvcc}  # where CMake looks first
done
excluded=()
if $with_torch; then
  tools/setup.sh --full
  defines=(--config-settings=cmake.define.RESHARD_BUILD_TORCH=ON)
  # They are PyTorch's.
  excluded=(--exclude 'libtorch*' --exclude 'libc10*')
fi
# The name that the presets use, so that what they compiled is found.
export CXX=${CXX:-c++}
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
rm -rf build/wheel-raw
"$tools/bin/pip" wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps "${defines[@]}" --wheel-dir build/wheel-raw .
# With the oldest tag that the libraries of this machine allow.
PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair "${excluded[@]}" --wheel-dir build/wheel-raw/repaired build/wheel-raw/reshard-*.whl 2>build/wheel-raw/repair.log ||
  { cat build/wheel-raw/repair.log >&2; exit 1; }
mkdir -p dist
mv build/wheel-raw/repaired/*.whl dist
wheel=$(ls -t dist/reshard-*.whl | head -1)
echo "built $wheel for $("$tools/bin/python" --version). Next: python3 -m venv env && env/bin/pip install $wheel && env/bin/reshard --help"
