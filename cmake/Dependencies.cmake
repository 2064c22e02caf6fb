# Libraries of others. Debian 12 has all of them (ci/setup installs them); elsewhere those that are not installed are
# fetched (see Fetch.cmake).
include(cmake/Fetch.cmake)
find_package(Threads REQUIRED)

# Boost is too large to be fetched for one of its libraries.
find_package(Boost QUIET COMPONENTS context)
if(NOT TARGET Boost::context)
  message(FATAL_ERROR "Boost.Context is not installed, and the build does not fetch it: install libboost-context-dev "
                      "(Debian), boost-devel (Fedora) or boost (Arch), or say where it is with -DBoost_ROOT=FOLDER")
endif()

# libelf has no CMake package, and no build of its own that could be fetched.
find_library(LOCKSTEP_ELF_LIBRARY elf)
find_path(LOCKSTEP_ELF_INCLUDE gelf.h)
if(NOT LOCKSTEP_ELF_LIBRARY OR NOT LOCKSTEP_ELF_INCLUDE)
  message(FATAL_ERROR "libelf is not installed, and the build does not fetch it: install libelf-dev (Debian), "
                      "elfutils-libelf-devel (Fedora) or libelf (Arch)")
endif()
add_library(lockstep_elf INTERFACE)
target_include_directories(lockstep_elf SYSTEM INTERFACE ${LOCKSTEP_ELF_INCLUDE})
target_link_libraries(lockstep_elf INTERFACE ${LOCKSTEP_ELF_LIBRARY})

lockstep_find(tl-expected tl::expected LOCKSTEP_FETCHED_EXPECTED)
if(LOCKSTEP_FETCHED_EXPECTED)
  lockstep_fetch(expected)  # the header alone: its CMake project fetches something that is not pinned
  add_library(tl::expected INTERFACE IMPORTED)
  target_include_directories(tl::expected INTERFACE ${expected_SOURCE_DIR}/include)
endif()

lockstep_find(fmt fmt::fmt fetch)
if(fetch)
  lockstep_add_fetched(fmt FMT_INSTALL OFF FMT_TEST OFF FMT_DOC OFF)
endif()

lockstep_find(nlohmann_json nlohmann_json::nlohmann_json fetch)
if(fetch)
  lockstep_fetch(json)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
  target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${json_SOURCE_DIR}/include)
endif()

lockstep_find(CLI11 CLI11::CLI11 fetch)
if(fetch)
  lockstep_fetch(cli11)
  add_library(CLI11::CLI11 INTERFACE IMPORTED)
  target_include_directories(CLI11::CLI11 INTERFACE ${cli11_SOURCE_DIR}/include)
endif()

lockstep_find(GTest GTest::gmock fetch)
if(fetch)
  lockstep_add_fetched(googletest INSTALL_GTEST OFF BUILD_GMOCK ON)
endif()

lockstep_find(benchmark benchmark::benchmark fetch)
if(fetch)
  lockstep_add_fetched(benchmark BENCHMARK_ENABLE_TESTING OFF BENCHMARK_ENABLE_GTEST_TESTS OFF
                       BENCHMARK_ENABLE_INSTALL OFF BENCHMARK_INSTALL_DOCS OFF BENCHMARK_ENABLE_WERROR OFF)
endif()

# An allocator for the program alone, where there is one: a sixth more cases a second in the simulator than with
# glibc's. It gives back what was freed last, which is still in the cache.
if(NOT LOCKSTEP_SANITIZE AND NOT LOCKSTEP_FETCH STREQUAL "ALL")
  find_library(LOCKSTEP_JEMALLOC_LIBRARY jemalloc)
endif()

# RapidCheck: the package file that Debian ships names folders that do not exist, so the installed one is looked for by its
# files.
if(NOT LOCKSTEP_FETCH STREQUAL "ALL")
  find_library(LOCKSTEP_RAPIDCHECK_LIBRARY rapidcheck)
  find_path(LOCKSTEP_RAPIDCHECK_INCLUDE rapidcheck/gtest.h)
endif()
add_library(lockstep_rapidcheck INTERFACE)
if(NOT LOCKSTEP_FETCH STREQUAL "ALL" AND LOCKSTEP_RAPIDCHECK_LIBRARY AND LOCKSTEP_RAPIDCHECK_INCLUDE)
  target_include_directories(lockstep_rapidcheck SYSTEM INTERFACE ${LOCKSTEP_RAPIDCHECK_INCLUDE})
  target_link_libraries(lockstep_rapidcheck INTERFACE ${LOCKSTEP_RAPIDCHECK_LIBRARY})
elseif(LOCKSTEP_FETCH STREQUAL "NONE")
  message(FATAL_ERROR "RapidCheck is not installed, and LOCKSTEP_FETCH is NONE")
else()
  lockstep_add_fetched(rapidcheck RC_ENABLE_GTEST ON)
  target_include_directories(lockstep_rapidcheck SYSTEM INTERFACE
                             ${rapidcheck_SOURCE_DIR}/include ${rapidcheck_SOURCE_DIR}/extras/gtest/include)
  target_link_libraries(lockstep_rapidcheck INTERFACE rapidcheck)
endif()

# Gloo as a system header, so that our warnings are about our code. Its own CMake package names no header folder, so the
# installed one is looked for by its files.
if(NOT LOCKSTEP_FETCH STREQUAL "ALL")
  find_library(LOCKSTEP_GLOO_LIBRARY gloo)
  find_path(LOCKSTEP_GLOO_INCLUDE gloo/allreduce.h)
endif()
if(NOT LOCKSTEP_FETCH STREQUAL "ALL" AND LOCKSTEP_GLOO_LIBRARY AND LOCKSTEP_GLOO_INCLUDE)
  set(LOCKSTEP_FETCHED_GLOO FALSE)
  if(NOT EXISTS ${LOCKSTEP_GLOO_INCLUDE}/gloo/common/memory.h)  # Debian's package leaves it out
    list(APPEND LOCKSTEP_GLOO_INCLUDE ${PROJECT_SOURCE_DIR}/cmake/gloo)
  endif()
elseif(LOCKSTEP_FETCH STREQUAL "NONE")
  message(FATAL_ERROR "Gloo is not installed, and LOCKSTEP_FETCH is NONE")
else()
  set(LOCKSTEP_FETCHED_GLOO TRUE)
  lockstep_add_fetched(gloo GLOO_INSTALL OFF USE_REDIS OFF USE_IBVERBS OFF USE_MPI OFF)
  target_compile_options(gloo PRIVATE -w -include cstdint)  # newer standard libraries do not include it by chance
  # With the headers of Linux 6 one function of this commit does not compile. It has another way for old kernels, and what
  # depends on it, the speed of a network interface, no one asks for: so that one file is told that the kernel is old.
  file(WRITE ${gloo_BINARY_DIR}/old_kernel/linux/version.h
       "#define LINUX_VERSION_CODE 0\n#define KERNEL_VERSION(a, b, c) 1\n")
  set_property(SOURCE ${gloo_SOURCE_DIR}/gloo/common/linux.cc TARGET_DIRECTORY gloo
               PROPERTY INCLUDE_DIRECTORIES ${gloo_BINARY_DIR}/old_kernel)
  set(LOCKSTEP_GLOO_LIBRARY gloo)
  set(LOCKSTEP_GLOO_INCLUDE ${gloo_SOURCE_DIR} ${gloo_BINARY_DIR})
endif()
add_library(lockstep_gloo INTERFACE)
target_include_directories(lockstep_gloo SYSTEM INTERFACE ${LOCKSTEP_GLOO_INCLUDE})
target_link_libraries(lockstep_gloo INTERFACE ${LOCKSTEP_GLOO_LIBRARY} Threads::Threads)

# xxHash, for the checksums of verified collectives: its header alone, compiled into what includes it.
if(NOT LOCKSTEP_FETCH STREQUAL "ALL")
  find_path(LOCKSTEP_XXHASH_INCLUDE xxhash.h)
endif()
if(LOCKSTEP_FETCH STREQUAL "NONE" AND NOT LOCKSTEP_XXHASH_INCLUDE)
  message(FATAL_ERROR "xxHash is not installed, and LOCKSTEP_FETCH is NONE")
elseif(LOCKSTEP_FETCH STREQUAL "ALL" OR NOT LOCKSTEP_XXHASH_INCLUDE)
  lockstep_fetch(xxhash)
  set(LOCKSTEP_XXHASH_INCLUDE ${xxhash_SOURCE_DIR})
endif()
add_library(lockstep_xxhash INTERFACE)
target_include_directories(lockstep_xxhash SYSTEM INTERFACE ${LOCKSTEP_XXHASH_INCLUDE})
