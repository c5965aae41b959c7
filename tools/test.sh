#!/usr/bin/env bash
# Sets up, builds and runs tests. Ends with CTest's summary, and why tests were skipped.
#   tools/test.sh           a selection, to trust a build by: plans, their independent check, loads and saves, attacks, the command
#   tools/test.sh --all     every test that needs no PyTorch, without those labelled slow (the full sweeps)
#   tools/test.sh --full    also those that need PyTorch: tensors, gradients and real processes over Gloo
#   tools/test.sh --slow    every test, the full sweeps included
#   tools/test.sh --asan    with AddressSanitizer and UBSan;  --tsan with ThreadSanitizer;  --debug with assertions, -O0
#   tools/test.sh ... --only A,B  builds and runs the tests of these folders of tests/ alone
#   tools/test.sh ... -- A  A... go to ctest, such as -L layout
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=core
only=""
slow=false
all=false
while (($# > 0)); do
  case "$1" in
    --all) all=true ;;
    --slow) slow=true all=true ;;
    --full) preset=full all=true ;;
    --asan) preset=asan all=true ;;
    --tsan) preset=tsan all=true ;;
    --debug) preset=debug all=true ;;
    --only) only=${2:?"test: --only needs folders of tests/"}; shift ;;
    --) shift; break ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "test: unknown option $1 (known: --all, --full, --slow, --asan, --tsan, --debug, --only, --)" >&2; exit 2 ;;
  esac
  shift
done

if ! $all && [[ -z $only ]]; then
  only=golden,check,live,attacks,tools
fi
case "$preset" in
  full) tools/setup.sh --full ;;
  asan | tsan) tools/setup.sh && tools/setup.sh --lint ;;  # Clang
  *) tools/setup.sh ;;
esac
# So that a clone in another directory finds what was compiled before.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake --preset "$preset" >/dev/null
selection=(--preset "$preset")
if [[ -n $only ]]; then
  IFS=, read -ra folders <<<"$only"
  # Some areas are tested by a program that tests itself.
  programs=()
  for folder in "${folders[@]}"; do
    case "$folder" in
      oracle | fakes) programs+=("test_${folder}_self") ;;
      *) programs+=("test_$folder") ;;
    esac
  done
  cmake --build --preset "$preset" --target "${programs[@]}"
  selection+=(--label-regex "^(${only//,/|})\$")
else
  cmake --build --preset "$preset"
fi
if $slow; then
  selection=("${selection[@]/#--preset/--test-dir}" --output-on-failure)
  selection[1]=build/$preset
fi
code=0
# One more than the cores: some tests spend most of their time waiting for something that never comes.
ctest "${selection[@]}" --no-label-summary --parallel "$(($(nproc) + 1))" "$@" </dev/null || code=$?
# CTest names what it skipped; this says why.
sed -n 's/^ *test skipped: /not tested here: /p' "build/$preset/Testing/Temporary/LastTest.log" 2>/dev/null | sort -u || true
exit $code
