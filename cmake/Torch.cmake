# LOCKSTEP_TORCH: the subject `torch` (properties/subject/torch) is built where libtorch is found with what it needs. Sets
# LOCKSTEP_HAS_TORCH, and the target lockstep_torch; one line says what was found, or why not, which is in
# LOCKSTEP_TORCH_PROBLEM, too.
#
# LOCKSTEP_TORCH_ROOT names another libtorch than the system's: a folder with include/ and lib/, as in a wheel or in a build
# of PyTorch. ci/torch sets it, in a build folder for each version.
#
# Its own CMake package is not asked: it requires tools of its build that a user need not have.
set(LOCKSTEP_HAS_TORCH FALSE)

# lockstep_find_torch(OUT): finds the library; OUT is what is wrong, or empty.
function(lockstep_find_torch out)
  set(${out} "" PARENT_SCOPE)
  set(where)
  if(LOCKSTEP_TORCH_ROOT)
    set(where PATHS ${LOCKSTEP_TORCH_ROOT}/lib ${LOCKSTEP_TORCH_ROOT}/include NO_DEFAULT_PATH)
    foreach(found LIBRARY INCLUDE)  # which may be those of another root
      unset(LOCKSTEP_TORCH_${found} CACHE)
    endforeach()
    unset(LOCKSTEP_C10_LIBRARY CACHE)
  endif()
  find_library(LOCKSTEP_TORCH_LIBRARY torch_cpu ${where})
  find_library(LOCKSTEP_C10_LIBRARY c10 ${where})
  find_path(LOCKSTEP_TORCH_INCLUDE torch/csrc/api/include/torch/version.h ${where})
  if(NOT LOCKSTEP_TORCH_LIBRARY OR NOT LOCKSTEP_C10_LIBRARY OR NOT LOCKSTEP_TORCH_INCLUDE)
    set(${out} "libtorch is not installed (ci/setup --torch)" PARENT_SCOPE)
    if(LOCKSTEP_TORCH_ROOT)
      set(${out} "no libtorch with its headers is in ${LOCKSTEP_TORCH_ROOT}" PARENT_SCOPE)
    endif()
    return()
  endif()
  set(version_header ${LOCKSTEP_TORCH_INCLUDE}/torch/csrc/api/include/torch/version.h)
  if(EXISTS ${LOCKSTEP_TORCH_INCLUDE}/torch/headeronly/version.h)  # where it has been since 2.10 or so
    set(version_header ${LOCKSTEP_TORCH_INCLUDE}/torch/headeronly/version.h)
  endif()
  file(STRINGS ${version_header} version REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" version "${version}")
  set(LOCKSTEP_TORCH_VERSION "${version}" PARENT_SCOPE)
  set(c10d ${LOCKSTEP_TORCH_INCLUDE}/torch/csrc/distributed/c10d)
  if(NOT EXISTS ${c10d}/reducer.hpp)
    set(${out} "libtorch ${version} is built without distributed training" PARENT_SCOPE)
    return()
  endif()
  if(LOCKSTEP_TORCH_ROOT)  # what is missing there, the compiler names
    if(NOT EXISTS ${c10d}/ProcessGroupGloo.hpp)
      set(${out} "libtorch ${version} has no Gloo" PARENT_SCOPE)
    endif()
    return()
  endif()
  # Declared by hand, as the headers take a quarter of a minute.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES ${LOCKSTEP_TORCH_LIBRARY} ${LOCKSTEP_C10_LIBRARY})
  set(CMAKE_REQUIRED_QUIET TRUE)
  check_cxx_source_compiles("
    #include <memory>
    namespace gloo::transport { class Device; }
    namespace c10d {
    struct Reducer { bool rebuild_buckets(); };
    struct ProcessGroupGloo { static std::shared_ptr<::gloo::transport::Device> createDefaultDevice(); };
    }
    int main() {
      auto first = &c10d::Reducer::rebuild_buckets;
      auto second = &c10d::ProcessGroupGloo::createDefaultDevice;
      return first != nullptr && second != nullptr ? 0 : 1;
    }" LOCKSTEP_TORCH_LINKS)
  if(NOT LOCKSTEP_TORCH_LINKS OR NOT EXISTS ${c10d}/ProcessGroupGloo.hpp)
    set(${out} "libtorch ${version} has no Gloo, or was built with another compiler" PARENT_SCOPE)
  endif()
endfunction()

if(LOCKSTEP_TORCH STREQUAL "OFF")
  set(LOCKSTEP_TORCH_PROBLEM "LOCKSTEP_TORCH is OFF")
  return()
endif()
if(LOCKSTEP_SANITIZE AND NOT LOCKSTEP_TORCH STREQUAL "ON")
  set(LOCKSTEP_TORCH_PROBLEM "libtorch is not built with sanitizers (LOCKSTEP_TORCH=ON builds beside it nevertheless)")
else()
  lockstep_find_torch(LOCKSTEP_TORCH_PROBLEM)
endif()
if(LOCKSTEP_TORCH_PROBLEM AND LOCKSTEP_TORCH STREQUAL "ON")
  message(FATAL_ERROR "The subject torch is asked for (LOCKSTEP_TORCH=ON), and cannot be built: ${LOCKSTEP_TORCH_PROBLEM}")
elseif(LOCKSTEP_TORCH_PROBLEM)
  message(STATUS "Subject torch: not built; ${LOCKSTEP_TORCH_PROBLEM}")
else()
  message(STATUS "Subject torch: libtorch ${LOCKSTEP_TORCH_VERSION}")
  set(LOCKSTEP_HAS_TORCH TRUE)
  add_library(lockstep_torch INTERFACE)
  target_include_directories(lockstep_torch SYSTEM INTERFACE ${LOCKSTEP_TORCH_INCLUDE}
                             ${LOCKSTEP_TORCH_INCLUDE}/torch/csrc/api/include
                             ${LOCKSTEP_TORCH_INCLUDE}/torch/csrc/distributed)
  # After the others: what libtorch's package has of this is taken from there.
  target_compile_options(lockstep_torch INTERFACE
                         "SHELL:-idirafter ${PROJECT_SOURCE_DIR}/properties/subject/torch/missing")
  target_compile_definitions(lockstep_torch INTERFACE USE_C10D_GLOO)
  target_link_libraries(lockstep_torch INTERFACE ${LOCKSTEP_TORCH_LIBRARY} ${LOCKSTEP_C10_LIBRARY})
  if(LOCKSTEP_TORCH_ROOT)
    # What it needs of CUDA it finds when it is loaded, by its own search path.
    target_link_options(lockstep_torch INTERFACE -Wl,--allow-shlib-undefined)
    # Wheels up to 2.5 or so have std::string in the form that it had before C++11. Then the whole program has it, and {fmt},
    # whose library has the new one, is compiled into it. It talks with lockstep over a socket.
    file(STRINGS ${LOCKSTEP_C10_LIBRARY} old_strings REGEX "torchCheckFailEPKcS2_jRKSs" LIMIT_COUNT 1)
    if(old_strings)
      message(STATUS "Subject torch: with std::string as before C++11")
      add_compile_definitions(_GLIBCXX_USE_CXX11_ABI=0 FMT_HEADER_ONLY)
    endif()
  endif()
endif()
