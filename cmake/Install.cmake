# What `cmake --install` puts into a prefix:
#   bin/lockstep, lockstep-seeded   the program, and what it goes on as for planted bugs in the real lanes
#   lib/libnccl-net-lockstep.so     the net plug-in, which its nccl lane gives to NCCL
#   lib/lockstep/played/            the GPU that its nccl lane plays for NCCL
#   lib/                            the reducer and its base, static
#   include/lockstep/reducer/...    their public headers; the include root is include/lockstep, as the root of the sources is here
#   include/lockstep_subject.h      for those who put a reducer of their own under test
#   include/lockstep_orders.h       for those who measure the order of additions of a library of their own
#   lib/liblockstep_gtest.so, include/lockstep/{gtest.h,subject.hpp,reducer_test.h}   tests of a reducer with GoogleTest
#   share/lockstep/{corpus,exhaust} the kept cases, for `corpus check` and `matrix`, and the programs of `exhaust`
#   lib/cmake/lockstep/             for find_package(lockstep): lockstepConfig.cmake.in says what a project finds
# Three components: `library`, `program` and `gtest`.
include(CMakePackageConfigHelpers)

set(lockstep_include ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)
set(lockstep_package ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

set_target_properties(lockstep_base PROPERTIES EXPORT_NAME base)
set_target_properties(lockstep_reducer PROPERTIES EXPORT_NAME reducer)
add_library(lockstep::base ALIAS lockstep_base)
add_library(lockstep::reducer ALIAS lockstep_reducer)

target_compile_features(lockstep_base PUBLIC cxx_std_20)
target_include_directories(lockstep_base PUBLIC $<INSTALL_INTERFACE:${lockstep_include}>)
target_include_directories(lockstep_reducer PUBLIC $<INSTALL_INTERFACE:${lockstep_include}>
                           $<INSTALL_INTERFACE:${lockstep_include}/reducer/platform/os>)
# In the build the reducer links lockstep_gloo; a user of the package gets lockstep::gloo from its config file.
target_link_libraries(lockstep_reducer PRIVATE $<INSTALL_INTERFACE:lockstep::gloo>)

add_library(lockstep_subject INTERFACE)
add_library(lockstep::subject ALIAS lockstep_subject)
set_target_properties(lockstep_subject PROPERTIES EXPORT_NAME subject)
target_include_directories(lockstep_subject INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/properties/subject>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(FILES ${PROJECT_SOURCE_DIR}/properties/subject/lockstep_subject.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)

# A set of its own, as the header needs nothing of what the libraries need.
install(TARGETS lockstep_subject EXPORT lockstep_subject_targets COMPONENT library)
install(EXPORT lockstep_subject_targets NAMESPACE lockstep:: FILE lockstepSubjectTargets.cmake
        DESTINATION ${lockstep_package} COMPONENT library)
install(TARGETS lockstep_base lockstep_reducer EXPORT lockstep_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
if(LOCKSTEP_HAVE_CUDA)
  foreach(part cuda cuda_plan cuda_kernels)
    set_target_properties(lockstep_${part} PROPERTIES EXPORT_NAME ${part})
    install(TARGETS lockstep_${part} EXPORT lockstep_targets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  endforeach()
  add_library(lockstep::cuda ALIAS lockstep_cuda)
endif()
install(EXPORT lockstep_targets NAMESPACE lockstep:: FILE lockstepTargets.cmake
        DESTINATION ${lockstep_package} COMPONENT library)

# The headers that users include. What these include is installed as well, and nothing else is.
set(lockstep_public_headers
  reducer/data_parallel.h
  reducer/comm/gloo/file_store.h
  reducer/comm/gloo/gloo_process_group.h
  reducer/comm/nccl/nccl_process_group.h
  reducer/device/host/host_device.h
  reducer/hooks/builtin_hooks.h
  reducer/hooks/power_sgd_hook.h
  reducer/tensor/half.h
  reducer/tensor/sparse.h)
if(LOCKSTEP_HAVE_CUDA)
  list(APPEND lockstep_public_headers reducer/device/cuda/cuda_device.h)
endif()

# lockstep_with_included(OUT HEADER...): the headers and those of ours that they include, directly or through others.
function(lockstep_with_included out)
  set(found)
  set(next ${ARGN})
  while(next)
    list(POP_FRONT next header)
    if(NOT header IN_LIST found)
      list(APPEND found ${header})
      file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"reducer/")
      list(TRANSFORM includes REPLACE "^#include \"([^\"]*)\".*" "\\1")
      list(APPEND next ${includes})
    endif()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# platform.h includes lockstep_platform/types.h, which is a different file on each platform. The package has the one of
# the operating system.
lockstep_with_included(lockstep_headers ${lockstep_public_headers} reducer/platform/os/lockstep_platform/types.h)
# One rule a file, and not install(DIRECTORY): that would leave empty folders behind.
foreach(header ${lockstep_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${lockstep_include}/${folder} COMPONENT library)
endforeach()

# Fetched libraries are on no one else's machine: the package brings what it needs of them.
if(LOCKSTEP_FETCHED_EXPECTED)
  install(FILES ${expected_SOURCE_DIR}/include/tl/expected.hpp DESTINATION ${lockstep_include}/bundled/tl
          COMPONENT library)
endif()
if(LOCKSTEP_FETCHED_GLOO)
  install(FILES $<TARGET_FILE:gloo> DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep RENAME libgloo.a COMPONENT library)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
                              INSTALL_DESTINATION ${lockstep_package}
                              PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
        DESTINATION ${lockstep_package} COMPONENT library)

# A project needs GoogleTest beside this library, and nothing of what is in it.
if(TARGET lockstep_gtest)
  install(TARGETS lockstep_gtest LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT gtest)
  foreach(header gtest.h reducer_test.h subject.hpp)
    install(FILES ${PROJECT_SOURCE_DIR}/properties/gtest/lockstep/${header}
            DESTINATION ${lockstep_include} COMPONENT gtest)
  endforeach()
endif()

if(TARGET lockstep)
  foreach(folder corpus exhaust)
    file(GLOB_RECURSE kept CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/properties
         ${PROJECT_SOURCE_DIR}/properties/${folder}/*.json)
    foreach(file ${kept})
      get_filename_component(below ${file} DIRECTORY)
      install(FILES ${PROJECT_SOURCE_DIR}/properties/${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/${below}
              COMPONENT program)
    endforeach()
  endforeach()
  install(TARGETS lockstep-seeded RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program OPTIONAL)
  install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  install(TARGETS lockstep_nccl_net lockstep_node_shim LIBRARY DESTINATION lib COMPONENT program)
  # In a folder of its own, where no other program takes it for a real GPU's.
  install(TARGETS lockstep_played_gpu lockstep_played_nvml lockstep_played_cudart_12 lockstep_played_cudart_13
          LIBRARY DESTINATION lib/lockstep/played COMPONENT program)
  # The program writes its completions and its manual page itself, from the options that its parser has.
  set(shell_files ${PROJECT_BINARY_DIR}/shell)
  add_custom_command(OUTPUT ${shell_files}/lockstep ${shell_files}/_lockstep ${shell_files}/lockstep.1
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${shell_files}
                     COMMAND lockstep completion bash > ${shell_files}/lockstep
                     COMMAND lockstep completion zsh > ${shell_files}/_lockstep
                     COMMAND lockstep man > ${shell_files}/lockstep.1
                     DEPENDS lockstep VERBATIM)
  add_custom_target(lockstep_shell_files ALL DEPENDS ${shell_files}/lockstep)
  install(FILES ${shell_files}/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          COMPONENT program)
  install(FILES ${shell_files}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
  install(FILES ${shell_files}/lockstep.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
