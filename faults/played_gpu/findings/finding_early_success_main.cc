// Shows what ncclAllReduce of a nonblocking communicator returns while the other rank is late.
//   early_success libnccl.so.2 [liblockstep-played-gpu.so]    without the second: on a GPU
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>

using Id = std::array<char, 128>;
struct Shared {
  std::atomic<int> ready, done;
  Id id;
};
struct Config {  // as far as 2.22 has it; newer ones take their defaults for the rest
  size_t size = 48;
  unsigned magic = 0xcafebeef, version = 22203;
  int blocking = 0, unset[3] = {1 << 31, 1 << 31, 1 << 31};
  const char* network = nullptr;
  int split[2] = {1 << 31, 1 << 31};
} config;
template <class Function>
Function* get(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int rank_main(int rank, char** files, Shared& shared) {
  alarm(30);
  for (const char* each : {"NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket", "NCCL_NET_PLUGIN=none",
                           "NCCL_ALGO=Ring", "NCCL_PROTO=Simple", "NCCL_CUMEM_HOST_ENABLE=0"})
    putenv(const_cast<char*>(each));
  setenv("NCCL_HOSTID", rank == 0 ? "0" : "1", 1);  // two ranks may share a GPU
  void* cuda = dlopen(files[2] ? files[2] : "libcudart.so", RTLD_NOW);
  if (files[2] && get<const char*(const char*)>(cuda, "lockstep_played_load")(files[1])) return 2;
  void *nccl = dlopen(files[1], RTLD_NOW), *comm = nullptr, *data = nullptr;
  auto sum = get<int(void*, void*, size_t, int, int, void*, void*)>(nccl, "ncclAllReduce");
  auto ask = get<int(void*, int*)>(nccl, "ncclCommGetAsyncError");
  if (rank == 0) get<int(Id*)>(nccl, "ncclGetUniqueId")(&shared.id), shared.ready = 1;
  while (!shared.ready) usleep(1000);
  auto init = get<int(void**, int, Id, int, Config*)>(nccl, "ncclCommInitRankConfig");
  int state = init(&comm, 2, shared.id, rank, &config);
  while (state == 7) usleep(1000), ask(comm, &state);
  if (state || get<int(void**, size_t)>(cuda, "cudaMalloc")(&data, 4096)) return 2;
  for (int i = 0; rank == 1 && i < 300 && shared.ready == 1; ++i) usleep(10000);
  const int result = sum(data, data, 1000, 7, 0, comm, nullptr);
  ask(comm, &state);
  if (rank == 0) std::printf("ncclAllReduce: %d, and then the communicator: %d\n", result, state);
  shared.ready = 2;
  while (state == 7) usleep(1000), ask(comm, &state);
  return get<int(void*)>(cuda, "cudaStreamSynchronize")(nullptr);
}

int main(int, char** files) {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& both = *static_cast<Shared*>(shared);
  const int code = rank_main(fork() == 0 ? 1 : 0, files, both);
  for (++both.done; both.done < 2;) usleep(1000);  // NCCL may still send what the other waits for
  fflush(nullptr), _exit(code);
}
