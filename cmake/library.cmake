# The library, shared and static, from the same objects. Every .c file below src/ belongs to it,
# but for tests, the command line, plug-ins, and the kernels that are compiled once per instruction
# set.
file(GLOB_RECURSE TUTTI_SOURCES src/*.c)
list(FILTER TUTTI_SOURCES EXCLUDE REGEX "_test\\.c$|_simd\\.c$|_plugin\\.c$|/src/cli/")
file(GLOB_RECURSE TUTTI_SIMD_SOURCES src/*_simd.c)

add_library(tutti_objects OBJECT ${TUTTI_SOURCES})
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/runtime/info/machine.c PROPERTIES
  COMPILE_DEFINITIONS TUTTI_VERSION="${PROJECT_VERSION}")
include(GNUInstallDirs)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/comm/backend/mpi/mpi_load.c PROPERTIES
  COMPILE_DEFINITIONS TUTTI_LIBDIR="${CMAKE_INSTALL_LIBDIR}")
target_include_directories(tutti_objects PRIVATE include src)
target_link_libraries(tutti_objects PRIVATE tutti_dependencies)
set(TUTTI_OBJECTS $<TARGET_OBJECTS:tutti_objects>)

# Kernels: the same source for each instruction set, and for f64 once more (vector.h); a table is
# chosen at start (kernels.h). They are optimised in every preset, for a debug build must still get
# through a training step. Vectors wider than the instruction set pass between static functions of
# one file only, so how they would be passed to others (psabi) is of no interest; nor is which loop
# a sanitizer keeps from being vectorised (pass-failed).
#
# Sanitizers make most of what compiling them costs. UBSan's check of pointer arithmetic more than
# doubles it (conv_simd.c for AVX-512: 42 s, without it 18 s), so of the variants the baseline alone
# has it: the same source. Fuzzers feed readers, no kernel: there kernels have no sanitizer.
function(tutti_simd_objects variant sources)
  add_library(tutti_simd_${variant} OBJECT ${sources})
  target_include_directories(tutti_simd_${variant} PRIVATE include src)
  target_link_libraries(tutti_simd_${variant} PRIVATE PkgConfig::XXHASH) # its header
  target_compile_definitions(tutti_simd_${variant} PRIVATE TT_ISA=${variant})
  target_compile_options(tutti_simd_${variant} PRIVATE -O3 -Wno-psabi
    $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed> ${ARGN})
  if(TUTTI_FUZZ)
    target_compile_options(tutti_simd_${variant} PRIVATE -fno-sanitize=all)
  elseif(CMAKE_C_FLAGS MATCHES "undefined" AND NOT variant MATCHES "baseline")
    target_compile_options(tutti_simd_${variant} PRIVATE -fno-sanitize=pointer-overflow)
  endif()
  set(TUTTI_OBJECTS ${TUTTI_OBJECTS} $<TARGET_OBJECTS:tutti_simd_${variant}> PARENT_SCOPE)
endfunction()

# Those that kernels.def says F64 of.
set(TUTTI_F64_SOURCES ${TUTTI_SIMD_SOURCES})
list(FILTER TUTTI_F64_SOURCES INCLUDE REGEX
     "/map_simd|/norm/|/distance/|/multilabel_|/recurrent/|/reduce_simd|/interpolate_|/gemm_simd|\
/gemm_finish|/rotary_")

macro(tutti_simd_variant isa)
  tutti_simd_objects(${isa} "${TUTTI_SIMD_SOURCES}" ${ARGN})
  tutti_simd_objects(f64_${isa} "${TUTTI_F64_SOURCES}" -DTT_F64=1 ${ARGN})
endmacro()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64") # chosen at start, where the CPU has them
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/core/kernel/matmul/gemm_dot_simd.c PROPERTIES
    COMPILE_OPTIONS -march=armv8.2-a+bf16)
endif()
tutti_simd_variant(baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  tutti_simd_variant(avx2 -march=x86-64-v3)
  tutti_simd_variant(avx512 -march=x86-64-v4 -mprefer-vector-width=512)
endif()

# Only what public headers mark with TUTTI_API is exported (visibility; tools/tidy compares).
add_library(tutti SHARED ${TUTTI_OBJECTS})
target_link_libraries(tutti PRIVATE tutti_dependencies)
target_link_options(tutti PRIVATE -Wl,-Bsymbolic-functions)
set_target_properties(tutti PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)

add_library(tutti_static STATIC ${TUTTI_OBJECTS})
target_link_libraries(tutti_static PUBLIC tutti_dependencies)
set_target_properties(tutti_static PROPERTIES OUTPUT_NAME tutti)

foreach(library tutti tutti_static)
  target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:include>)
endforeach()

# For what may look inside: tests and benchmarks.
add_library(tutti_internal INTERFACE)
target_link_libraries(tutti_internal INTERFACE tutti_static)
target_include_directories(tutti_internal INTERFACE src)
