# Libraries that are not installed come from their authors' repositories, at commits pinned here: the versions of Debian 12,
# which the tests were run with. LOCKSTEP_FETCH says when.
#
#   lockstep_find(PACKAGE TARGET OUT)          find_package(PACKAGE); OUT says whether TARGET has to be made by fetching
#   lockstep_fetch(NAME)                       the sources, in NAME_SOURCE_DIR
#   lockstep_add_fetched(NAME [VAR VALUE]...)  the sources and the targets of their CMake project, which takes the
#                                              variables as options; its install rules are left out
#
# FETCHCONTENT_SOURCE_DIR_<NAME> (CMake's own) takes a folder in place of the network.
include(FetchContent)
set(LOCKSTEP_FETCH AUTO CACHE STRING "Fetch libraries: AUTO (those not installed), ALL, or NONE")
set_property(CACHE LOCKSTEP_FETCH PROPERTY STRINGS AUTO ALL NONE)
if(NOT LOCKSTEP_FETCH MATCHES "^(AUTO|ALL|NONE)$")
  message(FATAL_ERROR "LOCKSTEP_FETCH is '${LOCKSTEP_FETCH}': use AUTO, ALL or NONE")
endif()

# name, repository, version, commit
set(lockstep_pins
  "expected|TartanLlama/expected|1.0.0|3d741708b967b83ca1e2888239196c4a67f9f9b0"
  "fmt|fmtlib/fmt|9.1.0|a33701196adfad74917046096bf5a2aa0ab0bb50"
  "json|nlohmann/json|3.11.2|bc889afb4c5bf1c0d8ee29ef35eaaf4c8bef8a5d"
  "cli11|CLIUtils/CLI11|2.1.2|70f8072f9dd2292fd0b9f9e5f58e279f60483ed3"
  "googletest|google/googletest|1.12.1|58d77fa8070e8cec2dc1ed015d66b454c8d78850"
  "benchmark|google/benchmark|1.7.1|d572f4777349d43653b21d6c2fc63020ab326db2"
  "rapidcheck|emil-e/rapidcheck|master of December 2021|08b505857e32d52a20b2240b5125d937d67a6d86"
  "gloo|facebookincubator/gloo|master of May 2022|5b143513263133af2b95547e97c07cebeb72bf72"
  "xxhash|Cyan4973/xxHash|0.8.1|35b0373c697b5f160d3db26b1cbb45a0d5ba788c")

# A macro: what find_package sets is for the caller.
macro(lockstep_find package target out)
  set(${out} FALSE)
  if(NOT LOCKSTEP_FETCH STREQUAL "ALL")
    find_package(${package} QUIET)
  endif()
  if(NOT TARGET ${target})
    if(LOCKSTEP_FETCH STREQUAL "NONE")
      message(FATAL_ERROR "${package} is not installed, and LOCKSTEP_FETCH is NONE")
    endif()
    set(${out} TRUE)
  endif()
endmacro()

# SOURCE_SUBDIR names no folder: the sources are only downloaded, and nothing of them runs unless asked for.
macro(lockstep_fetch name)
  foreach(lockstep_pin ${lockstep_pins})
    if(lockstep_pin MATCHES "^${name}\\|([^|]*)\\|([^|]*)\\|(.*)$")
      message(STATUS "${name}: taking version ${CMAKE_MATCH_2} from github.com/${CMAKE_MATCH_1}")
      FetchContent_Declare(${name} GIT_REPOSITORY https://github.com/${CMAKE_MATCH_1}.git GIT_TAG ${CMAKE_MATCH_3}
                           GIT_SUBMODULES "" SOURCE_SUBDIR no_such_folder)
    endif()
  endforeach()
  FetchContent_MakeAvailable(${name})
endmacro()

function(lockstep_add_fetched name)
  lockstep_fetch(${name})
  set(options ${ARGN})
  while(options)
    list(POP_FRONT options variable value)
    set(${variable} ${value})
  endwhile()
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # some of them ask for a CMake so old that new ones do not speak it
  set(CMAKE_WARN_DEPRECATED OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0048 NEW)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # our variables rule over their option()
  set(CMAKE_POLICY_DEFAULT_CMP0126 NEW)  # and over their set(... CACHE)
  set(BUILD_SHARED_LIBS OFF)
  add_subdirectory(${${name}_SOURCE_DIR} ${${name}_BINARY_DIR} EXCLUDE_FROM_ALL SYSTEM)
  set(${name}_SOURCE_DIR ${${name}_SOURCE_DIR} PARENT_SCOPE)
  set(${name}_BINARY_DIR ${${name}_BINARY_DIR} PARENT_SCOPE)
endfunction()
