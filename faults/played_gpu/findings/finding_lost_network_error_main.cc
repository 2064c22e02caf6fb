// NCCL 2.26.2 to 2.27.7 tell nobody that the network fails: rank 1 exits before the second sum.
//   lost_network_error libnccl.so.2 [liblockstep-played-gpu.so]    without the second: on a GPU
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

using Id = std::array<char, 128>;
struct Shared {
  std::atomic<int> ready;
  Id id;
};

int rank_main(int rank, char** files, Shared& shared) {
  for (const char* each : {"NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket", "NCCL_NET_PLUGIN=none",
                           "NCCL_ALGO=Ring", "NCCL_PROTO=Simple", "NCCL_MAX_NCHANNELS=1",
                           "NCCL_CUMEM_HOST_ENABLE=0", "NCCL_RUNTIME_CONNECT=0"})
    putenv(const_cast<char*>(each));
  setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);  // two ranks may share a GPU
  void* cuda = dlopen(files[2] ? files[2] : "libcudart.so", RTLD_NOW);
  if (!cuda) return std::puts(dlerror()), 2;
  if (files[2]) {
    auto load = reinterpret_cast<const char* (*)(const char*)>(dlsym(cuda, "lockstep_played_load"));
    if (const char* why = load(files[1])) return std::puts(why), 2;
  }
  void* nccl = dlopen(files[1], RTLD_NOW);
  auto make_id = reinterpret_cast<int (*)(Id*)>(dlsym(nccl, "ncclGetUniqueId"));
  auto init = reinterpret_cast<int (*)(void**, int, Id, int)>(dlsym(nccl, "ncclCommInitRank"));
  auto sum = reinterpret_cast<int (*)(void*, void*, size_t, int, int, void*, void*)>(
      dlsym(nccl, "ncclAllReduce"));
  auto error = reinterpret_cast<int (*)(void*, int*)>(dlsym(nccl, "ncclCommGetAsyncError"));
  auto allocate = reinterpret_cast<int (*)(void**, size_t)>(dlsym(cuda, "cudaMalloc"));
  auto make_stream =
      reinterpret_cast<int (*)(void**, unsigned)>(dlsym(cuda, "cudaStreamCreateWithFlags"));
  auto wait = reinterpret_cast<int (*)(void*)>(dlsym(cuda, "cudaStreamSynchronize"));
  if (rank == 0) make_id(&shared.id), shared.ready = 1;
  while (!shared.ready) usleep(1000);
  void *comm = nullptr, *data = nullptr, *stream = nullptr;
  if (init(&comm, 2, shared.id, rank) || allocate(&data, 4096) || make_stream(&stream, 1)) return 2;
  sum(data, data, 1000, 7, 0, comm, stream), wait(stream);
  if (rank == 1) return 0;
  sum(data, data, 1000, 7, 0, comm, stream);
  int told = 0;
  for (int i = 0; i < 500 && !told; ++i) error(comm, &told), usleep(10000);
  return std::printf(told ? "told: %d\n" : "nothing was told in 5 s (%d)\n", told), told == 0;
}

int main(int, char** files) {
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (fork() == 0) _exit(rank_main(1, files, *shared));
  const int code = rank_main(0, files, *shared);
  fflush(nullptr), _exit(code);
}
