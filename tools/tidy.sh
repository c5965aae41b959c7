#!/usr/bin/env bash
# clang-tidy over the library and the command, with the checks of .clang-tidy; any finding fails.
#   tools/tidy.sh              everything, folder by folder, as they are compiled
#   tools/tidy.sh planner      the folders whose path begins so
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for tool in clang-tidy clang++; do
  command -v "$tool" >/dev/null || { echo "tidy: there is no $tool (apt-get install clang-tidy clang)" >&2; exit 2; }
done
cmake --preset tidy >/dev/null
# A folder is one file here, too: what its files have in common is parsed once.
mapfile -t files < <(python3 - "${1:-}" <<'PYTHON'
import json, re, sys
prefix = re.sub(r"\W", "_", sys.argv[1])
for entry in json.load(open("build/tidy/compile_commands.json")):
    if entry["file"].endswith("precompiled.cc"):
        continue
    match = re.search(r"/unity_(\w+)_cxx\.cxx$", entry["file"])
    name = match.group(1) if match else re.sub(r"\W", "_", entry["file"].split("/build/tidy/")[-1])
    if name.startswith(prefix) or not prefix:
        print(entry["file"])
PYTHON
)
((${#files[@]} > 0)) || { echo "tidy: no folder begins with $1" >&2; exit 2; }
tidy_one() {
  local more=()
  # Minutes of following paths through 400 instances of the same loop.
  [[ $1 == */reduce_kernels.cc ]] && more=(--checks=-clang-analyzer-*)
  clang-tidy --quiet --warnings-as-errors='*' "${more[@]}" -p build/tidy "$1" 2> >(grep -v 'warnings\? generated\|^Suppressed' >&2)
}
export -f tidy_one
printf '%s\0' "${files[@]}" | xargs -0 -I{} -P "$(nproc)" bash -c 'tidy_one {}'
echo "tidy: ${#files[@]} folders and files, nothing found"
