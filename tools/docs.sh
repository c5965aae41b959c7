#!/usr/bin/env bash
# Makes the site of docs/, with mkdocs from build/docs (tools/setup.sh --docs); whatever is not right with it is an error.
#   tools/docs.sh           build/site, for any server of files
#   tools/docs.sh --serve   on http://127.0.0.1:8000, made anew when a page changes
# RESHARD_SOURCE_URL: where links to files that are not pages lead, such as https://HOST/OWNER/reshard/blob/main.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  "") command=(build) ;;
  --serve) command=(serve --watch examples --watch include --watch python) ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "docs: unknown option $1 (known: --serve)" >&2; exit 2 ;;
esac

tools/setup.sh --docs
export NO_MKDOCS_2_WARNING=1  # what its makers have to say to theirs
# Not --quiet: what is not logged does not count as an error.
build/docs/bin/mkdocs "${command[@]}" --strict 2>&1 | { grep --line-buffered -v '^INFO' >&2 || true; }
[[ ${1:-} == --serve ]] || echo "build/site/index.html"
