// What NCCL does about an error of the network: rank 1 exits before the second sum. 2.26.2
// to 2.27.7 tell nobody; with 2.23.4 the abort does not return, and the program ends by SIGALRM.
//   lost_network_error libnccl.so.2 [liblockstep-played-gpu.so]    without the second: on a GPU
#include <dlfcn.h>
#include <sys/mman.h>
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

template <class Function>
Function* get(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int rank_main(int rank, char** files, Shared& shared) {
  for (const char* each : {"NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket", "NCCL_NET_PLUGIN=none",
                           "NCCL_ALGO=Ring", "NCCL_PROTO=Simple", "NCCL_MAX_NCHANNELS=1",
                           "NCCL_CUMEM_HOST_ENABLE=0", "NCCL_RUNTIME_CONNECT=0"})
    putenv(const_cast<char*>(each));
  setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);  // two ranks may share a GPU
  void* cuda = dlopen(files[2] ? files[2] : "libcudart.so", RTLD_NOW);
  if (!cuda) return std::puts(dlerror()), 2;
  if (files[2])
    if (auto why = get<const char*(const char*)>(cuda, "lockstep_played_load")(files[1]))
      return std::puts(why), 2;
  void *nccl = dlopen(files[1], RTLD_NOW), *comm = nullptr, *data = nullptr, *stream = nullptr;
  auto sum = get<int(void*, void*, size_t, int, int, void*, void*)>(nccl, "ncclAllReduce");
  auto error = get<int(void*, int*)>(nccl, "ncclCommGetAsyncError");
  if (rank == 0) get<int(Id*)>(nccl, "ncclGetUniqueId")(&shared.id), shared.ready = 1;
  while (!shared.ready) usleep(1000);
  if (get<int(void**, int, Id, int)>(nccl, "ncclCommInitRank")(&comm, 2, shared.id, rank) ||
      get<int(void**, size_t)>(cuda, "cudaMalloc")(&data, 4096) ||
      get<int(void**, unsigned)>(cuda, "cudaStreamCreateWithFlags")(&stream, 1))
    return 2;
  sum(data, data, 1000, 7, 0, comm, stream), get<int(void*)>(cuda, "cudaStreamSynchronize")(stream);
  for (++shared.ready; shared.ready < 3;) usleep(1000);  // until both have the first sum
  if (rank == 1) return 0;
  sum(data, data, 1000, 7, 0, comm, stream);
  int told = 0;
  for (int i = 0; i < 1000 && !told; ++i) error(comm, &told), usleep(10000);
  std::printf(told ? "told: %d\n" : "nothing was told in 10 s (%d)\n", told);
  fflush(stdout), alarm(20);
  return std::printf("abort: %d\n", get<int(void*)>(nccl, "ncclCommAbort")(comm)), told == 0;
}

int main(int, char** files) {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const int code = rank_main(fork() == 0 ? 1 : 0, files, *static_cast<Shared*>(shared));
  fflush(nullptr), _exit(code);
}
