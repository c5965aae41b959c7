#!/usr/bin/env bash
# Runs everything that only a GPU can prove, and prints one table: the kernels and their bandwidth, the memory checker
# over them, all golden cases and sampled pairs over real NCCL with 1, 2, 4 and 8 processes on one GPU, and tensors
# through PyTorch.
#
#   tools/gpu_check.sh                   builds what it needs (the core preset; full where --torch is given), then checks
#   tools/gpu_check.sh --torch           also the scripts of tests/runtime/pytorch/gpu; needs PyTorch with CUDA
#   tools/gpu_check.sh --pack FOLDER     builds here, copies what the checks need to FOLDER, for a machine that cannot build
#   tools/gpu_check.sh --packed FOLDER   checks with what was packed; needs nothing but a GPU (and PyTorch for --torch)
#   tools/gpu_check.sh --within SECONDS  ends by then: what is not done has no result, and counts as failed
#
# Without a GPU it says so, runs the same suite over the fake NCCL instead, and exits with 0 if that passes.
# RESHARD_PYTHON is the Python that has PyTorch (default: build/venv/bin/python, else python3).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch=false
mode=build
folder=""
within=0
while (($# > 0)); do
  case "$1" in
    --torch) torch=true ;;
    --pack | --packed)
      mode=${1#--}
      folder=${2:?"gpu_check: $1 needs a folder"}
      shift
      ;;
    --within)
      within=${2:?"gpu_check: --within needs seconds"}
      [[ $within =~ ^[1-9][0-9]*$ ]] || { echo "gpu_check: --within $within is not a number of seconds" >&2; exit 2; }
      shift
      ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "gpu_check: unknown option $1 (known: --torch, --pack, --packed, --within)" >&2; exit 2 ;;
  esac
  shift
done

preset=core
if $torch && [[ $mode != packed ]]; then preset=full; fi
programs=(gpu_kernels gpu_ranks)
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

build() { # TARGET...
  cmake --preset "$preset" -D RESHARD_GPU_KERNELS=ON >/dev/null && cmake --build --preset "$preset" --target "$@" >/dev/null
}

if [[ $mode == pack ]]; then
  targets=("${programs[@]}")
  if $torch; then targets+=(reshard_torch reshard_python); fi
  build "${targets[@]}" || exit 1
  rm -rf "$folder"
  mkdir -p "$folder/bin" "$folder/lib" "$folder/tests/golden"
  for program in "${programs[@]}"; do cp "build/$preset/bin/$program" "$folder/bin/"; done
  binaries=("$folder"/bin/*)
  if $torch; then
    cp "build/$preset/lib/libreshard_torch.so" "$folder/lib/"
    cp -r "build/$preset/python" tests/runtime/pytorch "$folder/"
    binaries+=("$folder/lib/libreshard_torch.so")
  fi
  strip --strip-unneeded "${binaries[@]}"
  # The libraries of this distribution that another one may not have.
  ldd "${binaries[@]}" | awk '/(absl|xxhash|deflate)/ && $3 ~ /^\// {print $3}' | sort -u | xargs -r cp -L -t "$folder/lib"
  cp tests/golden/cases.json "$folder/tests/golden/"
  du -sh "$folder" | sed 's/^/packed: /'
  exit 0
fi

bin=build/$preset/bin
lib=build/$preset/lib
python_path=build/$preset/python
scripts=tests/runtime/pytorch/gpu
golden=tests/golden/cases.json
if [[ $mode == packed ]]; then
  bin=$folder/bin lib=$folder/lib python_path=$folder/python scripts=$folder/pytorch/gpu golden=$folder/tests/golden/cases.json
  export LD_LIBRARY_PATH=$folder/lib:${LD_LIBRARY_PATH:-}
fi

has_gpu() { compgen -G "/dev/nvidia[0-9]*" >/dev/null || { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }; }
if ! has_gpu; then
  if [[ $mode == packed ]]; then
    echo "gpu_check: there is no GPU here; nothing was checked (without --packed: the same suite over the fake NCCL)"
    exit 0
  fi
  echo "gpu_check: there is no GPU here. The same suite over the fake NCCL:"
  build test_nccl test_cuda gpu_ranks gpu_kernels || exit 1
  # 77: they report that there is no GPU.
  for program in "$bin/gpu_kernels" "$bin/gpu_ranks $golden 2"; do
    $program || (($? == 77)) || exit 1
  done
  ctest --preset "$preset" --label-regex '^(nccl|cuda)$' --no-label-summary </dev/null
  exit $?
fi

if [[ $mode == build ]]; then
  targets=("${programs[@]}")
  if $torch; then targets+=(reshard_torch reshard_python); fi
  build "${targets[@]}" || exit 1
fi
logs=$(mktemp -d)
rows=()
failures=0

# check NAME SECONDS COMMAND...: a row of the table. The last two lines that the command prints are what it found.
check() {
  local name=$1 limit=$2 log began code found left
  shift 2
  if ((within > 0)); then
    left=$((within - SECONDS))
    if ((left < 15)); then # no check ends sooner
      failures=$((failures + 1))
      rows+=("| $name | **not run** | the $within s were over | 0 |")
      return
    fi
    # A command that does not end is killed ten seconds later.
    if ((limit > left - 12)); then limit=$((left - 12)); fi
  fi
  log=$logs/${name//[^A-Za-z0-9]/_}.log
  began=$SECONDS
  echo "gpu_check: $name" >&2
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null
  code=$?
  found=$(grep -v '^[[:space:]]*$' "$log" | tail -n 2 | paste -sd ';' | tr '|' '/')
  if ((code != 0)); then
    failures=$((failures + 1))
    tail -n 40 "$log" >&2
  fi
  rows+=("| $name | $( ((code == 0)) && echo ok || echo "**failed ($code)**") | ${found:0:160} | $((SECONDS - began)) |")
}

check "kernels: right, and their bandwidth" 240 "$bin/gpu_kernels"
kernels_log=$logs/kernels__right__and_their_bandwidth.log
for ranks in 1 2 4 8; do
  # A few milliseconds per operation and rank: see docs/gpu.md.
  check "plans over NCCL, $ranks processes" 400 "$bin/gpu_ranks" "$golden" "$ranks" $((600 / ranks / ranks + 40))
done
# Programs seldom set these: if this row passes and the one above does not, kernels waited for each other.
check "plans over NCCL, 4 processes, in launch order, kernels loaded at once" 400 \
  env NCCL_LAUNCH_ORDER_IMPLICIT=1 CUDA_MODULE_LOADING=EAGER "$bin/gpu_ranks" "$golden" 4 40
if $torch; then
  python=${RESHARD_PYTHON:-build/venv/bin/python}
  command -v "$python" >/dev/null || python=python3
  export RESHARD_TORCH_LIBRARY=$PWD/$lib/libreshard_torch.so PYTHONPATH=$python_path
  if [[ $mode == packed ]]; then RESHARD_TORCH_LIBRARY=$(realpath "$lib/libreshard_torch.so") PYTHONPATH=$(realpath "$python_path"); fi
  for transport in c10d nccl; do
    for ranks in 2 4; do
      check "PyTorch tensors, $transport, $ranks processes" 300 "$python" "$scripts/redistribute_gpu.py" --ranks "$ranks" \
        --transport "$transport"
    done
  done
fi
# Last: they take the longest.
if command -v compute-sanitizer >/dev/null; then
  check "compute-sanitizer, memcheck" 300 compute-sanitizer --tool memcheck --error-exitcode 3 "$bin/gpu_kernels" --small
  check "compute-sanitizer, racecheck" 300 compute-sanitizer --tool racecheck --error-exitcode 3 "$bin/gpu_kernels" --small
else
  rows+=("| compute-sanitizer | not run | it is not installed | 0 |")
fi

echo
echo "date: $(date -u +%Y-%m-%d)"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort -u | sed 's/^/GPU, driver: /'
grep -h -m1 '^libraries:' "$logs"/*.log | head -n 1
echo
echo "| check | result | found | seconds |"
echo "|---|---|---|---|"
printf '%s\n' "${rows[@]}"
echo
sed -n '/^| /p' "$kernels_log"
echo
echo "gpu_check: $failures of ${#rows[@]} checks failed; logs in $logs"
((failures == 0))
