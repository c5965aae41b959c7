# Compiles CUDA kernels where the CUDA toolkit is, without making CUDA a language of the project: a fat binary that
# becomes part of a library. Without the toolkit, or with one that does not work with this compiler, the library is built
# without kernels.
find_program(RESHARD_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
mark_as_advanced(RESHARD_NVCC)

# What every compilation has. Without fused multiplication, results have the bits that they have on the host.
set(RESHARD_NVCC_FLAGS -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr --fatbin)
foreach(architecture IN LISTS RESHARD_GPU_ARCHITECTURES)
  list(APPEND RESHARD_NVCC_FLAGS -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET RESHARD_GPU_ARCHITECTURES 0 oldest)
list(APPEND RESHARD_NVCC_FLAGS -gencode arch=compute_${oldest},code=compute_${oldest})

# reshard_find_kernel_compiler(RESULT): whether nvcc compiles for all of these devices here; says so.
function(reshard_find_kernel_compiler result)
  set(works FALSE)
  if(NOT RESHARD_GPU_KERNELS)
    message(STATUS "GPU kernels: none, RESHARD_GPU_KERNELS is off")
  elseif(NOT RESHARD_NVCC)
    message(STATUS "GPU kernels: none, there is no nvcc")
  else()
    # Asked once a compiler.
    set(key "${RESHARD_NVCC} ${RESHARD_NVCC_FLAGS}")
    if(NOT RESHARD_NVCC_TRIED STREQUAL key)
      set(folder ${CMAKE_BINARY_DIR}/CMakeFiles/reshard_nvcc)
      file(WRITE ${folder}/try.cu "#include <bit>\n#include <cstdint>\nextern \"C\" __global__ void one(unsigned* x) { *x = std::bit_cast<unsigned>(1.0f); }\n")
      execute_process(COMMAND ${RESHARD_NVCC} ${RESHARD_NVCC_FLAGS} try.cu -o try.fatbin WORKING_DIRECTORY ${folder}
                      RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
      set(RESHARD_NVCC_TRIED "${key}" CACHE INTERNAL "")
      set(RESHARD_NVCC_OUTPUT "" CACHE INTERNAL "")
      if(NOT code EQUAL 0)
        set(RESHARD_NVCC_OUTPUT "${code}: ${output}" CACHE INTERNAL "")
      endif()
    endif()
    if(RESHARD_NVCC_OUTPUT)
      message(STATUS "GPU kernels: none, ${RESHARD_NVCC} (12.8 or newer is needed) fails with ${RESHARD_NVCC_OUTPUT}")
    else()
      message(STATUS "GPU kernels: for ${RESHARD_GPU_ARCHITECTURES} and newer, by ${RESHARD_NVCC}")
      set(works TRUE)
    endif()
  endif()
  set(${result} ${works} PARENT_SCOPE)
endfunction()

# reshard_kernels(SOURCE IMAGE_SOURCE): SOURCE.cu is compiled, and the C++ file IMAGE_SOURCE gets the macro
# RESHARD_KERNEL_IMAGE, the path of the fat binary that it includes. Call it where the library is made.
function(reshard_kernels source image_source)
  reshard_find_kernel_compiler(works)
  if(NOT works)
    return()
  endif()
  cmake_path(GET source STEM name)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  set(werror "")
  if(RESHARD_WERROR)
    set(werror -Werror all-warnings)
  endif()
  add_custom_command(
    OUTPUT ${image} DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${image}.d VERBATIM
    COMMAND ${RESHARD_NVCC} ${RESHARD_NVCC_FLAGS} ${werror} -I ${PROJECT_SOURCE_DIR} -I ${PROJECT_SOURCE_DIR}/include
            -MD -MF ${image}.d -MT ${image} -o ${image} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    COMMENT "Compiling GPU kernels ${source}")
  set_source_files_properties(${image_source} PROPERTIES COMPILE_DEFINITIONS "RESHARD_KERNEL_IMAGE=\"${image}\""
                                                         OBJECT_DEPENDS ${image})
endfunction()
