// States: values of parameters and buffers on every rank (S3). What they are is hashed, and of no
// meaning: what matters is who has which.
//
// Plain data; one thread; never fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/program.h"

namespace lockstep::reference {

// Tensors of a program's state: with Replicated::with_values those of the parameters, first owners
// in order, then the buffers.
struct StateTensor {
  std::uint32_t key = 0;
  std::uint64_t elements = 0;
  DType dtype = DType::kFloat32;
  std::uint32_t device = 0;
  bool is_buffer = false;
  bool ignored = false;
  std::uint32_t copy_of = 0;  // k: the one k places before, in another replica (P15)
  std::uint32_t reducer = 0;  // F7: whose it is
};
std::vector<StateTensor> state_tensors(const Program& program);

// A broadcast leaves what the reducer ignores and what other replicas have (P15).
inline bool is_broadcast(const StateTensor& tensor) {
  return !tensor.ignored && tensor.copy_of == 0;
}

// The bytes of each broadcast of the buffers among these tensors.
std::vector<std::uint64_t> buffer_chunks(const Replicated& options,
                                         const std::vector<StateTensor>& tensors);

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
