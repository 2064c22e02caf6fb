// ncclCommShrink does not check the ranks that it leaves out: without rank 9 of three ranks, the
// last rank gets an invalid argument, and the others go on as if there were two of them.
//   shrink_without_nobody libnccl.so.2 [liblockstep-played-gpu.so]    without the second: on a GPU
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

int rank_main(int rank, char** files, Shared& shared) {
  for (const char* each : {"NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket", "NCCL_NET_PLUGIN=none",
                           "NCCL_CUMEM_HOST_ENABLE=0", "NCCL_MAX_NCHANNELS=1"})
    putenv(const_cast<char*>(each));
  setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);  // ranks may share a GPU
  if (files[2]) {
    void* played = dlopen(files[2], RTLD_NOW);
    if (!played) return std::puts(dlerror()), 2;
    auto load =
        reinterpret_cast<const char* (*)(const char*)>(dlsym(played, "lockstep_played_load"));
    if (const char* why = load(files[1])) return std::puts(why), 2;
  }
  void* nccl = dlopen(files[1], RTLD_NOW);
  if (!nccl) return std::puts(dlerror()), 2;
  if (!dlsym(nccl, "ncclCommShrink")) return rank ? 0 : std::puts("ncclCommShrink: not there");
  auto make_id = reinterpret_cast<int (*)(Id*)>(dlsym(nccl, "ncclGetUniqueId"));
  auto init = reinterpret_cast<int (*)(void**, int, Id, int)>(dlsym(nccl, "ncclCommInitRank"));
  auto shrink = reinterpret_cast<int (*)(void*, int*, int, void**, void*, int)>(
      dlsym(nccl, "ncclCommShrink"));
  auto count = reinterpret_cast<int (*)(void*, int*)>(dlsym(nccl, "ncclCommCount"));
  if (rank == 0) make_id(&shared.id), shared.ready = 1;
  while (!shared.ready) usleep(1000);
  void *comm = nullptr, *child = nullptr;
  if (init(&comm, 3, shared.id, rank)) return 2;
  int nobody = 9, ranks = 0;
  const int result = shrink(comm, &nobody, 1, &child, nullptr, 0);
  if (result == 0) count(child, &ranks);
  return std::printf("rank %d: result %d, %d ranks\n", rank, result, ranks), 0;
}

int main(int, char** files) {
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int rank = 1; rank < 3; ++rank)
    if (fork() == 0)
      alarm(20), rank_main(rank, files, *shared), fflush(nullptr), sleep(5), _exit(0);
  alarm(20), rank_main(0, files, *shared), fflush(nullptr), sleep(5), _exit(0);
}
