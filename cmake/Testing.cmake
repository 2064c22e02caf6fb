# lockstep_sources(OUT folder...): the .cc files of the folders, tests and programs (*_main.cc) left out.
# lockstep_test_sources(OUT folder...): their *_test.cc files.
# lockstep_test(name SOURCES ... LIBS ... [LABELS ...] [RESOURCE_LOCK ...] [COST ...] [WAITS]): a GoogleTest program; every test
# in it is a test of ctest. Of tests with the same RESOURCE_LOCK one runs at a time. Those with a higher COST begin sooner.
# lockstep_tested(SOURCE...): these are in a test program; ci/checks/tests finds a *_test.cc of which nobody says so.
# lockstep_long_test(SECONDS TEST...): tests that take about so many seconds, so that ctest begins with them, in a fresh clone too.
# lockstep_waiting_test(SECONDS TEST...): the same for tests that wait for nearly all of that time: for a timeout, or a process.
#
# ctest counts a test as so many of its parallel jobs as its PROCESSORS say. Tests of GoogleTest programs and long ones count
# twice, as they keep a processor busy, and tests that wait count once: `ctest -j 8` runs four of the first at once, or eight of
# the second, so that processors are busy until the last test is over.
include(GoogleTest)
# Part of binutils; it links a test in two thirds of the time.
find_program(LOCKSTEP_GOLD ld.gold)

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

function(lockstep_tested)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TESTED ${source})
  endforeach()
endfunction()

function(lockstep_test name)
  cmake_parse_arguments(ARG "WAITS" "RESOURCE_LOCK;COST" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  lockstep_tested(${ARG_SOURCES})
  # Less than of a library: after a change of one test all of its batch are compiled. Most of them are small, and then most of
  # the time goes to GoogleTest's headers and templates, so the size counts, and not how many they are.
  set(LOCKSTEP_BATCH_SIZE 30)
  set(LOCKSTEP_BATCH_KIB 150)
  lockstep_batches(sources ${name} ${PROJECT_SOURCE_DIR} ${ARG_SOURCES})
  add_executable(${name} ${sources})
  lockstep_quick_to_compile(${name})
  if(NOT LOCKSTEP_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${name} PRIVATE -g0)  # line numbers of tests are a tenth of their time to compile
  endif()
  # Another linker that the user has chosen stays.
  if(LOCKSTEP_GOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_LINKER_TYPE
     AND NOT "${CMAKE_CXX_FLAGS} ${CMAKE_EXE_LINKER_FLAGS}" MATCHES "-fuse-ld=")
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} lockstep_warnings GTest::gtest GTest::gmock GTest::gtest_main)
  set(properties)
  if(ARG_RESOURCE_LOCK)
    list(APPEND properties RESOURCE_LOCK ${ARG_RESOURCE_LOCK})
  endif()
  if(ARG_COST)
    list(APPEND properties COST ${ARG_COST})
  endif()
  if(NOT ARG_WAITS)
    list(APPEND properties PROCESSORS 2)
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300 LABELS "${ARG_LABELS}" ${properties})
endfunction()

function(lockstep_long_test seconds)
  set_tests_properties(${ARGN} PROPERTIES COST ${seconds} PROCESSORS 2)
endfunction()

function(lockstep_waiting_test seconds)
  set_tests_properties(${ARGN} PROPERTIES COST ${seconds})
endfunction()
