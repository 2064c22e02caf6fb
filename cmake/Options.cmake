# What a builder may choose.
include(GNUInstallDirs)  # first, as every folder may install something
set(LOCKSTEP_CUDA AUTO CACHE STRING "Build the CUDA parts: AUTO (where a toolkit is found), ON (required) or OFF")
set_property(CACHE LOCKSTEP_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LOCKSTEP_TORCH AUTO CACHE STRING "Build the subject torch: AUTO (where libtorch is found), ON (required) or OFF")
set_property(CACHE LOCKSTEP_TORCH PROPERTY STRINGS AUTO ON OFF)
set(LOCKSTEP_TORCH_ROOT "" CACHE PATH "A folder with another libtorch than the system's (ci/torch)")
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizer: empty, address (with undefined) or thread")
set_property(CACHE LOCKSTEP_SANITIZE PROPERTY STRINGS "" address thread)
set(LOCKSTEP_SEEDED_DIR "" CACHE PATH "A further folder of seeded-bug patches, besides faults/seeded")
set(LOCKSTEP_MUTANTS 0 CACHE STRING "Mutants in place of the planted bugs: how many, or all (ci/mutants)")
set(LOCKSTEP_MUTANTS_SEED 1 CACHE STRING "The seed by which mutants are chosen")
set(LOCKSTEP_MUTANTS_DONE "" CACHE FILEPATH "A log of `lockstep eval`: the mutants in it are not made")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# Results must be the declared roundings, in every build type: no contraction, no fast math. (Of CUDA code the same is said
# in reducer/device/cuda.)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# The compiler's heap grows to 512 MiB before it first collects garbage, which takes a tenth of the time of a batch away. The
# largest batch then takes 985 MiB; parallel_jobs in ci/lib.sh reckons with 1 GiB.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>")
# GCC 12.2 at -O2 dropped the rounding in (double)(float)x for values carried through a loop; without this vectorizer it does not.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-tree-slp-vectorize>)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
if(LOCKSTEP_SANITIZE)  # compiles in two thirds of the time, and reports show more of the stack
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source folder are hashed relative to it, and debug information names none of them, so that another clone
  # on the same machine compiles nothing anew.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${LOCKSTEP_CCACHE})
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>")
endif()

if(LOCKSTEP_SANITIZE STREQUAL "address")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=address,undefined)
elseif(LOCKSTEP_SANITIZE STREQUAL "thread")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=thread)
elseif(LOCKSTEP_SANITIZE)
  message(FATAL_ERROR "LOCKSTEP_SANITIZE is '${LOCKSTEP_SANITIZE}': use address, thread or nothing")
endif()
