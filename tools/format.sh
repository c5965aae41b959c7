#!/usr/bin/env bash
# clang-format over every C++ and CUDA file.
#   tools/format.sh            formats
#   tools/format.sh --check    changes nothing; fails where a file would change
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v clang-format >/dev/null || { echo "format: there is no clang-format (apt-get install clang-format)" >&2; exit 2; }
case "${1:-}" in
  "") arguments=(-i) ;;
  --check) arguments=(--dry-run -Werror) ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
git ls-files -co --exclude-standard -z '*.cc' '*.h' '*.cu' | xargs -0 -n 64 -P "$(nproc)" clang-format "${arguments[@]}"
