# lockstep_sources(OUT folder...): the .cc files of the folders, tests and programs (*_main.cc) left out.
# lockstep_test_sources(OUT folder...): their *_test.cc files.
# lockstep_test(name SOURCES ... LIBS ... [LABELS ...] [RESOURCE_LOCK ...]): a GoogleTest program; every test in it is a test of
# ctest. Of tests with the same RESOURCE_LOCK one runs at a time.
# lockstep_long_test(SECONDS TEST...): tests that take about so many seconds, so that ctest begins with them, in a fresh clone too.
include(GoogleTest)

function(lockstep_sources out)
  set(found)
  foreach(folder ${ARGN})
    file(GLOB here CONFIGURE_DEPENDS ${folder}/*.cc)
    list(FILTER here EXCLUDE REGEX "(_test|_main)\\.cc$")
    list(APPEND found ${here})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

function(lockstep_test_sources out)
  set(found)
  foreach(folder ${ARGN})
    file(GLOB here CONFIGURE_DEPENDS ${folder}/*_test.cc)
    list(APPEND found ${here})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

function(lockstep_test name)
  cmake_parse_arguments(ARG "" "RESOURCE_LOCK" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  set(LOCKSTEP_BATCH_SIZE 8)  # fewer than of a library: after a change of one test all of its batch are compiled
  lockstep_batches(sources ${name} ${PROJECT_SOURCE_DIR} ${ARG_SOURCES})
  add_executable(${name} ${sources})
  lockstep_quick_to_compile(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} lockstep_warnings GTest::gtest GTest::gmock GTest::gtest_main)
  set(lock)
  if(ARG_RESOURCE_LOCK)
    set(lock RESOURCE_LOCK ${ARG_RESOURCE_LOCK})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300 LABELS "${ARG_LABELS}" ${lock})
endfunction()

function(lockstep_long_test seconds)
  set_tests_properties(${ARGN} PROPERTIES COST ${seconds})
endfunction()
