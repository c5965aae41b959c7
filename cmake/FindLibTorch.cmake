# LibTorch for host code: the headers and the two libraries it links, without the CUDA toolkit that the wheel's own
# package configuration asks for. Looks below LibTorch_ROOT (the folder that has include/ and lib/), else in the private
# environment of tools/setup.sh --full, else in the Python that is on the path. Target: LibTorch::LibTorch.
if(NOT LibTorch_ROOT)
  file(GLOB torch_in_venv ${PROJECT_SOURCE_DIR}/build/venv/lib/python3*/site-packages/torch)
  if(torch_in_venv)
    set(LibTorch_ROOT ${torch_in_venv})
  else()
    execute_process(COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE LibTorch_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
# The interpreter that imports this torch: .../bin/python of .../lib/python3.x/site-packages/torch.
if(LibTorch_ROOT)
  cmake_path(SET torch_prefix NORMALIZE ${LibTorch_ROOT}/../../../..)
  find_program(LibTorch_PYTHON NAMES python python3 HINTS ${torch_prefix}/bin)
endif()
find_path(LibTorch_INCLUDE_DIR ATen/ATen.h HINTS ${LibTorch_ROOT}/include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
# "2.11.0+cu130"; empty for a LibTorch that is no Python package.
set(LibTorch_VERSION "")
if(EXISTS ${LibTorch_ROOT}/version.py)
  file(STRINGS ${LibTorch_ROOT}/version.py torch_version REGEX "^__version__ *= *'.*'")
  string(REGEX REPLACE ".*'(.*)'.*" "\\1" LibTorch_VERSION "${torch_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
                                           VERSION_VAR LibTorch_VERSION)
if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_INCLUDE_DIR}
                                                                 ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  # c10d's public structs have members only with this.
  target_compile_definitions(LibTorch::LibTorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
endif()
