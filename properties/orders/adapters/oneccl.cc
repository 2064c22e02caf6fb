// The functions of lockstep_orders.h over oneCCL, whose CPU ranks can be called from C++ alone (its
// functions for C want a GPU). oneccl.py compiles this file against the headers of the version that
// is measured. Rank 0 writes the address of the job to the file that LOCKSTEP_ONECCL_ADDRESS names,
// and the other ranks wait for it.
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "oneapi/ccl.hpp"

namespace {

struct Job {
  int rank = 0;
  int ranks = 0;
  std::shared_ptr<ccl::kvs> store;
  std::optional<ccl::communicator> group;
};
Job job;

void write_address(const std::string& file, const ccl::kvs::address_type& address) {
  {
    std::ofstream out(file + ".new", std::ios::binary);
    out.write(address.data(), static_cast<std::streamsize>(address.size()));
    if (!out.flush())
      throw std::runtime_error("the address of the job cannot be written to " + file);
  }
  if (std::rename((file + ".new").c_str(), file.c_str()) != 0)
    throw std::runtime_error("the address of the job cannot be written to " + file);
}

ccl::kvs::address_type wait_for_address(const std::string& file) {
  constexpr int kTries = 6000;
  constexpr useconds_t kPauseUs = 10'000;
  for (int i = 0; i < kTries; ++i) {
    std::ifstream in(file, std::ios::binary);
    ccl::kvs::address_type address{};
    if (in && in.read(address.data(), static_cast<std::streamsize>(address.size()))) return address;
    ::usleep(kPauseUs);
  }
  throw std::runtime_error("rank 0 did not write the address of the job within a minute");
}

ccl::datatype type_of(const std::string& dtype) {
  if (dtype == "float32") return ccl::datatype::float32;
  if (dtype == "float64") return ccl::datatype::float64;
  if (dtype == "float16") return ccl::datatype::float16;
  if (dtype == "bfloat16") return ccl::datatype::bfloat16;
  throw std::runtime_error("oneCCL has no dtype " + dtype);
}

// Exceptions do not leave the library: what they say goes to the log of the rank.
template <class Work>
int code_of(Work work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oneCCL, rank %d: %s\n", job.rank, error.what());
    return 1;
  }
}

void make_group() { job.group.emplace(ccl::create_communicator(job.ranks, job.rank, job.store)); }

}  // namespace

extern "C" {

int lockstep_orders_join(int rank, int ranks, int /*port*/) {
  return code_of([&] {
    const char* const file = std::getenv("LOCKSTEP_ONECCL_ADDRESS");
    if (file == nullptr) throw std::runtime_error("LOCKSTEP_ONECCL_ADDRESS is not set");
    job.rank = rank;
    job.ranks = ranks;
    ccl::init();
    if (rank == 0) {
      job.store = ccl::create_main_kvs();
      write_address(file, job.store->get_address());
    } else {
      job.store = ccl::create_kvs(wait_for_address(file));
    }
    make_group();
  });
}

int lockstep_orders_new_group(void) { return code_of(make_group); }

int lockstep_orders_all_reduce(const void* in, void* out, size_t elements, const char* dtype) {
  return code_of([&] {
    ccl::allreduce(in, out, elements, type_of(dtype), ccl::reduction::sum, *job.group).wait();
  });
}

int lockstep_orders_reduce_scatter(const void* in, void* out, size_t elements, const char* dtype) {
  return code_of([&] {
    ccl::reduce_scatter(in, out, elements, type_of(dtype), ccl::reduction::sum, *job.group).wait();
  });
}

int lockstep_orders_reduce(const void* in, void* out, size_t elements, const char* dtype,
                           int root) {
  return code_of([&] {
    ccl::reduce(in, out, elements, type_of(dtype), ccl::reduction::sum, root, *job.group).wait();
  });
}

int lockstep_orders_leave(void) {
  return code_of([] {
    job.group.reset();
    job.store.reset();
  });
}

}  // extern "C"
