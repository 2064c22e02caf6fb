// oneCCL's functions for C++ as functions for C, which oneccl.py compiles and calls: those that
// oneCCL itself has for C want a GPU. Each returns null, or what went wrong, which remains valid
// until the next call. One thread of a process calls them.
#include <cstddef>
#include <exception>
#include <memory>
#include <oneapi/ccl.hpp>
#include <optional>
#include <string>

namespace {

std::shared_ptr<ccl::kvs> store;
std::optional<ccl::communicator> group;

template <class Work>
const char* failure_of(Work work) {
  static std::string text;
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
    return text.c_str();
  }
}

}  // namespace

extern "C" {

// Rank 0 fills in the address of the job, and the other ranks give it.
const char* oneccl_join(int rank, ccl::kvs::address_type* address) {
  return failure_of([=] {
    ccl::init();
    store = rank == 0 ? ccl::create_main_kvs() : ccl::create_kvs(*address);
    *address = store->get_address();
  });
}

const char* oneccl_new_group(int rank, int ranks) {
  return failure_of([=] { group.emplace(ccl::create_communicator(ranks, rank, store)); });
}

// `elements` are those of `out`.
const char* oneccl_all_reduce(const void* in, void* out, std::size_t elements, int dtype) {
  return failure_of([=] {
    ccl::allreduce(in, out, elements, ccl::datatype(dtype), ccl::reduction::sum, *group).wait();
  });
}
const char* oneccl_reduce_scatter(const void* in, void* out, std::size_t elements, int dtype) {
  return failure_of([=] {
    ccl::reduce_scatter(in, out, elements, ccl::datatype(dtype), ccl::reduction::sum, *group)
        .wait();
  });
}
const char* oneccl_reduce(const void* in, void* out, std::size_t elements, int dtype, int root) {
  return failure_of([=] {
    ccl::reduce(in, out, elements, ccl::datatype(dtype), ccl::reduction::sum, root, *group).wait();
  });
}

}  // extern "C"
