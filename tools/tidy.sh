#!/usr/bin/env bash
# clang-tidy over the library and the command, with the checks of .clang-tidy; any finding fails. Before that, each file is
# parsed alone, as the presets `dev` and `debug` compile it: a missing #include shows.
#   tools/tidy.sh              everything, library by library
#   tools/tidy.sh planner      the files and libraries in folders whose path begins with this
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for tool in clang-tidy clang++; do
  command -v "$tool" >/dev/null || { echo "tidy: there is no $tool (apt-get install clang-tidy clang)" >&2; exit 2; }
done
cmake --preset debug >/dev/null
python3 - "${1:-}" <<'PYTHON'
import concurrent.futures, json, os, shlex, subprocess, sys

def parse(entry):
    words = shlex.split(entry["command"])
    while "=" in words[0] or os.path.basename(words[0]) in ("cmake", "-E", "env", "ccache"):
        words.pop(0)
    words[words.index("-o") + 1] = "/dev/null"
    done = subprocess.run([*words, "-fsyntax-only"], cwd=entry["directory"], capture_output=True, text=True)
    return done.returncode, done.stderr

entries = json.load(open("build/debug/compile_commands.json"))
entries = [entry for entry in entries if os.path.relpath(entry["file"]).startswith(sys.argv[1]) and
           not os.path.relpath(entry["file"]).startswith(("tests/", "build/"))]
precompiled = {words[words.index("-include") + 1] + ".gch" for words in (shlex.split(e["command"]) for e in entries) if "-include" in words}
subprocess.run(["ninja", "-C", "build/debug", "--quiet", *(os.path.relpath(path, "build/debug") for path in precompiled)], check=True)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    wrong = [said for code, said in pool.map(parse, entries) if code != 0]
print(*wrong, f"tidy: {len(entries)} files parsed alone, {len(wrong)} do not compile", sep="\n")
sys.exit(bool(wrong))
PYTHON
cmake --preset tidy >/dev/null
# A library is one file here, so that its includes are read and searched once. The longest first.
mapfile -t files < <(python3 - "${1:-}" <<'PYTHON'
import json, os, sys
files = [os.path.relpath(entry["file"]) for entry in json.load(open("build/tidy/compile_commands.json"))]
files = [file for file in files if file.removeprefix("build/tidy/").startswith(sys.argv[1])]
def lines(file):
    return sum(line.startswith("#include") for line in open(file))
for file in sorted(files, key=lines, reverse=True):
    print(file)
PYTHON
)
((${#files[@]} > 0)) || { echo "tidy: no folder begins with $1" >&2; exit 2; }
tidy_one() {
  local more=()
  # It follows paths through 400 instances of the same loop for minutes.
  [[ $1 == */reduce_kernels.cc ]] && more=(--checks=-clang-analyzer-*)
  clang-tidy --quiet --warnings-as-errors='*' "${more[@]}" -p build/tidy "$1" 2> >(grep -v 'warnings\? generated\|^Suppressed' >&2)
}
export -f tidy_one
printf '%s\0' "${files[@]}" | xargs -0 -I{} -P "$(nproc)" bash -c 'tidy_one {}'
echo "tidy: ${#files[@]} libraries and files, nothing found"
