#!/usr/bin/env bash
# Measures Shardy, XLA and DTensor again, on the pairs of layouts of the first table of docs/figures.md, beside reshard.
# Prints the rows of that table and of the one of docs/planning.md, and exits with 1 if a page prints other figures.
#   tools/rivals.sh               all 10,755 pairs: 4 to 7 minutes on two cores, by the version of jax
#   tools/rivals.sh --sample N    N of them, which confirm nothing
# jax and torch are installed into build/rivals, the newest for this Python; PyTorch is taken from build/venv instead if
# `tools/setup.sh --full` has put it there. PYTHON: another Python, which has newer ones.
# BIN: the folder with the command, build/core/bin.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  "" | --sample) ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "usage: tools/rivals.sh [--sample N]" >&2; exit 2 ;;
esac
bin=${BIN:-build/core/bin}
env=build/rivals
if [[ ! -x $bin/reshard ]]; then
  cmake --preset core >/dev/null
  cmake --build --preset core --target reshard >&2
fi

if [[ ! -e $env/complete ]]; then
  echo "rivals: installing jax and torch into $env" >&2
  python=${PYTHON:-python3}
  "$python" -m venv --clear "$env"
  packages=(jax torch)
  # The environment of the tests has a PyTorch for the system's Python.
  for site in "$PWD"/build/venv/lib/python3*/site-packages; do
    own=$env/lib/$(basename "$(dirname "$site")")/site-packages
    if [[ -d $site/torch && -d $own ]]; then
      echo "$site" >"$own/torch.pth"
      packages=(jax)
    fi
  done
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-input "${packages[@]}"
  touch "$env/complete"
fi

# XLA warns about each "involuntary full rematerialization".
export TF_CPP_MIN_LOG_LEVEL=2
exec "$env/bin/python" tests/bench/rivals/compare.py "$bin/reshard" "$@"
