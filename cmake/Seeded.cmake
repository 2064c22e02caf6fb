# Builds of the reducer with planted bugs; what they are is in faults/seeded/README.md.
#
#   lockstep_seeded_copy(ROOT)            the rule that makes ROOT/reducer from the sources and the patches; sets
#                                         LOCKSTEP_SEEDED_ROOT and LOCKSTEP_SEEDED_LIST (the list of bugs, a source)
#   lockstep_seeded_library(NAME NAMESPACE NS LIKE TARGET)
#                                         a static library of the copies of TARGET's sources, in the inline namespace NS
#
# Whoever links such a library is compiled against the copy and in its namespace, whatever other folders it includes from.
set(LOCKSTEP_SEEDED_WITHOUT "" CACHE STRING "Ids of seeded bugs that are left out (a list)")
set(LOCKSTEP_SWITCHES seeded/seeded.h)  # the header of every patched source
if(LOCKSTEP_MUTANTS)
  set(LOCKSTEP_SWITCHES mutants/mutants.h)
endif()
find_package(Git QUIET)
if(NOT GIT_EXECUTABLE)
  message(FATAL_ERROR "git is not installed; it plants the seeded bugs (faults/seeded). Install git")
endif()

# lockstep_patches(OUT FOLDER): its patches in the order of their numbers, without those that are left out.
function(lockstep_patches out folder)
  set(kept)
  file(GLOB patches CONFIGURE_DEPENDS ${folder}/*.patch)
  list(SORT patches)
  foreach(patch ${patches})
    file(STRINGS ${patch} line REGEX "^id:" LIMIT_COUNT 1)
    string(REGEX REPLACE "^id:[ \t]*" "" id "${line}")
    string(STRIP "${id}" id)
    if(NOT id IN_LIST LOCKSTEP_SEEDED_WITHOUT)
      list(APPEND kept ${patch})
    endif()
  endforeach()
  if(NOT patches)
    message(FATAL_ERROR "There is no *.patch file in ${folder}: LOCKSTEP_SEEDED_DIR names a folder of seeded bugs")
  endif()
  set(${out} ${kept} PARENT_SCOPE)
endfunction()

# lockstep_mutant_copy(ROOT FILE...): as lockstep_seeded_copy, with mutants in place of the patches.
function(lockstep_mutant_copy root)
  find_program(LOCKSTEP_PYTHON python3)
  if(NOT LOCKSTEP_PYTHON)
    message(FATAL_ERROR "python3 is not installed; it makes the mutants (faults/mutants). Install python3")
  endif()
  set(script ${PROJECT_SOURCE_DIR}/faults/mutants/mutate.py)
  set(equivalent ${PROJECT_SOURCE_DIR}/faults/mutants/equivalent.txt)
  set(originals ${ARGN})
  list(TRANSFORM originals PREPEND ${PROJECT_SOURCE_DIR}/)
  add_custom_command(OUTPUT ${root}/planted.stamp
                     COMMAND ${LOCKSTEP_PYTHON} ${script} --source ${PROJECT_SOURCE_DIR} --files ${root}/files.txt --out ${root}
                             --list ${root}/list.cc --count ${LOCKSTEP_MUTANTS} --seed ${LOCKSTEP_MUTANTS_SEED}
                             --equivalent ${equivalent} "--done=${LOCKSTEP_MUTANTS_DONE}"
                     COMMAND ${CMAKE_COMMAND} -E touch ${root}/planted.stamp
                     DEPENDS ${script} ${equivalent} ${originals} ${root}/files.txt ${LOCKSTEP_MUTANTS_DONE}
                     COMMENT "Making the mutants" VERBATIM)
endfunction()

function(lockstep_seeded_copy root)
  lockstep_patches(patches ${PROJECT_SOURCE_DIR}/faults/seeded)
  if(LOCKSTEP_SEEDED_DIR)
    lockstep_patches(further ${LOCKSTEP_SEEDED_DIR})
    list(APPEND patches ${further})
  endif()
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/reducer/*.h ${PROJECT_SOURCE_DIR}/reducer/*.cc)
  list(FILTER files EXCLUDE REGEX "(_test[a-z_]*|_main|/test_[a-z_]*)\\.(h|cc)$")
  list(SORT files)

  list(JOIN files "\n" text)
  file(CONFIGURE OUTPUT ${root}/files.txt CONTENT "${text}\n" @ONLY)
  list(JOIN patches "\n" text)
  file(CONFIGURE OUTPUT ${root}/patches.txt CONTENT "${text}\n" @ONLY)

  set(list ${root}/list.cc)
  set(script ${PROJECT_SOURCE_DIR}/faults/seeded/apply.cmake)
  set(copies ${files})
  list(TRANSFORM copies PREPEND ${root}/)
  set(originals ${files})
  list(TRANSFORM originals PREPEND ${PROJECT_SOURCE_DIR}/)
  # The command that can fail has one output: of a failed one the build tool names all of them, a page of paths in front of what
  # is wrong. Copies whose text stays are not written again, so that nothing behind them is compiled again either.
  if(LOCKSTEP_MUTANTS)
    lockstep_mutant_copy(${root} ${files})
  else()
    add_custom_command(OUTPUT ${root}/planted.stamp
                       COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DFILES=${root}/files.txt
                               -DPATCHES=${root}/patches.txt -DOUT=${root} -DLIST=${list} -DGIT=${GIT_EXECUTABLE}
                               -P ${script}
                       COMMAND ${CMAKE_COMMAND} -E touch ${root}/planted.stamp
                       DEPENDS ${script} ${patches} ${originals} ${root}/files.txt ${root}/patches.txt
                       COMMENT "Planting the seeded bugs" VERBATIM)
  endif()
  add_custom_command(OUTPUT ${list} ${copies} COMMAND ${CMAKE_COMMAND} -E true DEPENDS ${root}/planted.stamp
                     COMMENT "Comparing the copies with seeded bugs" VERBATIM)
  add_custom_target(lockstep_seeded_sources DEPENDS ${list} ${copies})
  set(LOCKSTEP_SEEDED_ROOT ${root} PARENT_SCOPE)
  set(LOCKSTEP_SEEDED_LIST ${list} PARENT_SCOPE)
endfunction()

function(lockstep_seeded_library name)
  cmake_parse_arguments(ARG "" "NAMESPACE;LIKE" "" ${ARGN})
  get_target_property(sources ${ARG_LIKE} LOCKSTEP_SOURCES)  # before they were put into batches
  if(NOT sources)
    get_target_property(sources ${ARG_LIKE} SOURCES)
  endif()
  get_target_property(folder ${ARG_LIKE} SOURCE_DIR)
  set(copies)
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE BASE_DIR ${folder})
    file(RELATIVE_PATH source ${PROJECT_SOURCE_DIR} ${source})
    list(APPEND copies ${LOCKSTEP_SEEDED_ROOT}/${source})
  endforeach()
  lockstep_batches(batches ${name} ${LOCKSTEP_SEEDED_ROOT} ${copies})
  add_library(${name} STATIC ${batches})
  add_dependencies(${name} lockstep_seeded_sources)
  target_compile_definitions(${name} PUBLIC LOCKSTEP_NS=${ARG_NAMESPACE})
  # -iquote comes before every -I, in whatever order targets are linked: "reducer/..." is the copy.
  target_compile_options(${name} PUBLIC "SHELL:-iquote ${LOCKSTEP_SEEDED_ROOT}"
                         "SHELL:-include ${PROJECT_SOURCE_DIR}/faults/${LOCKSTEP_SWITCHES}")
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC lockstep_seeded PRIVATE lockstep_warnings)
  if(LOCKSTEP_MUTANTS)
    target_compile_options(${name} PRIVATE -w)  # a dropped statement may leave a variable without a use
  endif()
endfunction()
