#!/bin/bash
# Writes the tables and pictures of docs/planning.md: builds the programs that print them, runs them, and puts their
# output between the marks of the page. Everything is computed with whole numbers or rounded far above the noise of
# floating point, so that every machine writes the same.
#   tools/planning_docs.sh            build, write docs/planning.md, docs/across.svg, docs/race.svg (two minutes)
#   tools/planning_docs.sh --check    build nothing; compare instead of writing, and exit with 1 if a part is out of date
#   tools/planning_docs.sh --check --quick     only the parts that take less than a second
# BIN: the folder with the programs, build/core/bin.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-build/core/bin}
check=0 quick=0
for word in "$@"; do
  case $word in
    --check) check=1 ;;
    --quick) quick=1 ;;
    *) echo "usage: tools/planning_docs.sh [--check [--quick]]" >&2; exit 2 ;;
  esac
done
if [ $check = 0 ]; then
  cmake --preset core >/dev/null
  cmake --build --preset core --target reshard bench_planners bench_simulate >&2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp docs/planning.md "$work/page"

# part NAME: standard input between the lines <!-- NAME --> and <!-- end NAME -->.
part() {
  cat >"$work/part"
  grep -q "^<!-- $1 -->\$" "$work/page" || { echo "docs/planning.md has no part $1" >&2; exit 1; }
  awk -v name="$1" -v file="$work/part" '
    $0 == "<!-- end " name " -->" { skip = 0 }
    !skip { print }
    $0 == "<!-- " name " -->" { skip = 1; while ((getline line < file) > 0) print line }' "$work/page" >"$work/next"
  mv "$work/next" "$work/page"
}

across=('{node:2,gpu:8}' '[<node>16384, 4096]' '[16384, <node>4096]' --topology dgx-h100)
{
  echo '```'
  "$bin/reshard" plan "${across[@]}" --explain
  echo '```'
} | part across
"$bin/reshard" plan "${across[@]}" --svg "$work/across.svg" >/dev/null 2>&1
"$bin/bench_planners" hard | part hard
"$bin/bench_planners" measured | part measured
if [ $quick = 0 ]; then
  "$bin/bench_planners" sweep | part sweep
  "$bin/bench_planners" levels | part levels
  "$bin/bench_planners" uneven | part uneven
  "$bin/bench_simulate" --svg "$work/race.svg" | part race
fi

if [ $check = 1 ]; then
  stale=0
  diff -u docs/planning.md "$work/page" || stale=1
  for picture in "$work"/*.svg; do cmp "docs/$(basename "$picture")" "$picture" || stale=1; done
  [ $stale = 0 ] || echo "run tools/planning_docs.sh" >&2
  exit $stale
fi
cp "$work/page" docs/planning.md
cp "$work"/*.svg docs/
