// A CUDA runtime without a GPU, for tests of CudaDevice: the calls that it makes, over queues of
// work in this process. GPUs are numbers: which is current, and which have a context. A stream
// runs when somebody asks for an event, unless a test holds it; kernels are emulated
// (test_emulation.h). Memory that was given back is not used again, so that whatever still works on
// it is noticed. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

struct CUstream_st;

namespace lockstep {

struct FakeCuda {
  // What the fake says it is.
  int driver_version = 13000;
  int runtime_version = 13000;
  int count_error = 0;
  int devices = 1;
  int load_error = 0;

  std::map<std::string, int> fail_next;  // by the name of a call: what it returns, once
  // Pools by (GPU that uses, GPU whose memory it is), and GPUs that cannot reach each other.
  std::set<std::pair<int, int>> open_pools;
  std::set<std::pair<int, int>> out_of_reach;
  int gpu_error = 0;   // what every call that asks the GPU returns
  int last_error = 0;  // what the runtime remembers for cudaGetLastError

  int current = 0;         // the thread's device
  std::set<int> contexts;  // devices that have one: each that was made current

  std::map<std::string, std::function<void()>> during;  // what happens during a call, once

  std::map<std::string, int> calls;
  std::vector<std::string> violations;  // work on memory that was given back
  std::size_t live_blocks = 0;          // of memory of the GPU

  void hold(CUstream_st* stream);
  void let_go(CUstream_st* stream);
  void run();  // what can run
};

// The one there is; reset() gives a fresh one, and needs all devices to be gone.
FakeCuda& fake_cuda();
void reset_fake_cuda();

}  // namespace lockstep
