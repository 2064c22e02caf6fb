# The libraries of the program, and the tests (about 150 KiB in a batch), are compiled in batches: a batch includes up to 14 of
# the sources, which takes less than half the time, as what they include is read, and what they make of templates is made, once. It
# is also what lets the four builds of the reducer fit into a first `ci/fuzz`.
#
#   lockstep_library(NAME FILE...)             a static library of these files, in batches
#   lockstep_batches(OUT NAME FOLDER FILE...)  the sources to give to a target in place of the files, which are below FOLDER, the
#                                              folder that their quoted includes count from
#   lockstep_alone(FILE...)                    these are in no batch
#   lockstep_quick_to_compile(TARGET...)       compiled with -Og, in two thirds of the time, as little time is spent in them
#
# Sources with options of their own stay alone, too. Two sources in a batch share their anonymous namespaces: a name that both
# have is an error. Rename one of them, or keep one alone. LOCKSTEP_BATCHES=OFF compiles every file alone, as the preset dev does:
# after a change of one file there is less to compile, and after one of a header, or in a fresh clone, more.
option(LOCKSTEP_BATCHES "Compile the libraries of the program in batches of sources" ON)
set(LOCKSTEP_BATCH_SIZE 14)
set(LOCKSTEP_BATCH_KIB 1024)  # of sources, together

# lockstep_size(OUT FILE): in bytes. Of copies that the build makes it is 0, as they need not be there yet.
function(lockstep_size out file)
  set(size 0)
  get_filename_component(file ${file} ABSOLUTE)
  if(EXISTS ${file} AND NOT file MATCHES "^${PROJECT_BINARY_DIR}/")
    file(SIZE ${file} size)
  endif()
  set(${out} ${size} PARENT_SCOPE)
endfunction()

# lockstep_even_part(OUT KIB FILE...): the most bytes of a batch, so that no batch is much larger than KIB, and none much smaller
# than the others.
function(lockstep_even_part out kib)
  set(total 0)
  set(largest 0)
  foreach(file ${ARGN})
    lockstep_size(size ${file})
    math(EXPR total "${total} + ${size}")
    if(size GREATER largest)
      set(largest ${size})
    endif()
  endforeach()
  math(EXPR part "${total} / (${total} / (1024 * ${kib}) + 1) + ${largest} / 2")
  set(${out} ${part} PARENT_SCOPE)
endfunction()

# A part of lockstep_batches(): writes the batch that it has gathered, and begins the next one.
macro(lockstep_end_batch)
  set(batch ${CMAKE_CURRENT_BINARY_DIR}/batches/${name}_${number}.cc)
  file(CONFIGURE OUTPUT ${batch} CONTENT "${text}" @ONLY)
  list(APPEND batches ${batch})
  set(text)
  set(count 0)
  set(bytes 0)
  math(EXPR number "${number} + 1")
endmacro()

function(lockstep_batches out name folder)
  list(LENGTH ARGN count)
  if(NOT LOCKSTEP_BATCHES OR count EQUAL 1)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(alone)
  set(batches)
  set(text)
  set(count 0)
  set(bytes 0)
  set(number 0)
  lockstep_even_part(most_bytes ${LOCKSTEP_BATCH_KIB} ${ARGN})
  set(left ${ARGN})
  while(left)
    list(POP_FRONT left file)
    get_filename_component(file ${file} ABSOLUTE)
    get_source_file_property(options ${file} COMPILE_OPTIONS)
    file(RELATIVE_PATH path ${folder} ${file})
    get_property(kept_alone GLOBAL PROPERTY lockstep_kept_alone)
    if(options OR path IN_LIST kept_alone)
      list(APPEND alone ${file})
    else()
      lockstep_size(size ${file})
      math(EXPR bytes_with "${bytes} + ${size}")
      if(text AND (count EQUAL LOCKSTEP_BATCH_SIZE OR bytes_with GREATER most_bytes))
        lockstep_end_batch()
      endif()
      # Not absolute: the compiler cache of another clone finds the same text.
      string(APPEND text "#include \"${path}\"\n")
      math(EXPR count "${count} + 1")
      math(EXPR bytes "${bytes} + ${size}")
    endif()
  endwhile()
  if(text)
    lockstep_end_batch()
  endif()
  # That a type of a header has members of types in an anonymous namespace is a mistake only in a header.
  set_source_files_properties(${batches} PROPERTIES COMPILE_OPTIONS
                              $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  set(${out} ${batches} ${alone} PARENT_SCOPE)
endfunction()

function(lockstep_library name)
  lockstep_batches(sources ${name} ${PROJECT_SOURCE_DIR} ${ARGN})
  add_library(${name} STATIC ${sources})
endfunction()

# Of an inline function that is not inlined the linker keeps the first copy. Where one from such a target came before those of
# the reducer, the model and the simulator, `lockstep fuzz` was 4 to 10 % slower; so a program names their objects first.
function(lockstep_quick_to_compile)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:RelWithDebInfo>>:-Og>)
  endforeach()
endfunction()

function(lockstep_alone)
  set_property(GLOBAL APPEND PROPERTY lockstep_kept_alone ${ARGN})
endfunction()
# The first has options of its own in one of the builds; so batches are the same ones in all. What the second defines is not in
# the namespace of a build: of several copies the linker takes one, which it cannot if the copies come with other things. The
# others have names that another source has, too; without roster.cc such sources come into one batch.
lockstep_alone(reducer/comm/roster.cc properties/lane/roster_check.cc properties/lane/host_ranks.cc
               properties/lane/rank_host.cc properties/lane/rank_run.cc
               reducer/device/host/host_device.cc reducer/device/cuda/cuda_error.cc
               reducer/bucket/layout.cc reducer/comm/gloo/mesh_connections.cc reducer/comm/gloo/watched_transport.cc
               faults/sim/nccl/ring.cc
               properties/generate/tensors.cc properties/oracle/gradients.cc
               properties/report/python_script.cc properties/subject/torch/model/finalization_test.cc
               properties/subject/torch/model/hook_model_test.cc)
