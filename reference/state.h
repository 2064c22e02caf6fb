// States: values of parameters and buffers on every rank (S3). What they are is hashed, and of no
// meaning: what matters is who has which.
//
// Plain data; one thread; never fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/program.h"

namespace lockstep::reference {

// Tensors of a program's state: with Options::with_values those of the parameters, first owners in
// order, then the buffers.
struct StateTensor {
  std::uint32_t key = 0;
  std::uint64_t elements = 0;
  DType dtype = DType::kFloat32;
  std::uint32_t element_bytes = 4;
  std::uint32_t device = 0;
  bool is_buffer = false;
  bool ignored = false;
  std::uint32_t copy_of = 0;  // k: the one k places before, in another replica (P15)
  std::uint32_t reducer = 0;  // F7: whose it is
};
std::vector<StateTensor> state_tensors(const Program& program);

class States {
 public:
  explicit States(const Program& program);

  // Every one of `ranks` begins with what start_of_state() says, then all have what the first has.
  void begin(const std::vector<std::uint32_t>& ranks);
  // All buffers become what they are on `root`.
  void broadcast_buffers(const std::vector<std::uint32_t>& ranks, std::uint32_t root);
  // P15: what `rank` has of further replicas becomes what it has of the first one.
  void copy_to_replicas(std::uint32_t rank, bool with_buffers);
  // One forward with gradients.
  void run_forward(std::uint32_t rank, std::uint32_t step_key, std::uint32_t forward);
  // What comes after a synced step: values of parameters change, alike on all ranks.
  void train(std::uint32_t rank, std::uint32_t step_key);
  // All becomes what it is on `root`.
  void broadcast_all(const std::vector<std::uint32_t>& ranks, std::uint32_t root);
  // Bytes of each broadcast of the buffers.
  std::vector<std::uint64_t> buffer_chunks() const;
  // One hash_of_state() a tensor.
  void record(std::uint32_t rank, std::vector<std::uint64_t>& hashes) const;
  bool empty() const { return tensors_.empty(); }

 private:
  std::vector<std::uint64_t>& bits(std::uint32_t rank, std::size_t tensor) {
    return bits_[rank * tensors_.size() + tensor];
  }
  void broadcast(const std::vector<std::uint32_t>& ranks, std::uint32_t root, bool buffers_only);

  const Program& program_;
  const std::vector<StateTensor> tensors_;
  std::vector<std::vector<std::uint64_t>> bits_;  // of all elements, by rank and tensor
};

// Bits of an element at the beginning and after a recovery, different on every rank; and after one
// forward, the `forward`-th of its step, from what they were.
std::uint64_t start_of_state(const Program& program, const StateTensor& tensor, std::uint32_t rank,
                             std::uint64_t element);
std::uint64_t after_forward(const Program& program, const StateTensor& tensor, std::uint32_t rank,
                            std::uint32_t step_key, std::uint32_t forward, std::uint64_t element,
                            std::uint64_t bits);
// And of a value of a parameter, after a synced step.
std::uint64_t after_training(const StateTensor& tensor, std::uint32_t step_key, std::uint64_t bits);
// `bits`: of the elements in row-major order.
std::uint64_t hash_of_state(const std::vector<std::uint64_t>& bits);

}  // namespace lockstep::reference
