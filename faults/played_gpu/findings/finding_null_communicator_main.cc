// Calls of NCCL with a null communicator: most return ncclInvalidArgument (4). ncclCommShrink, and
// the ncclCommSplit of 2.23.4, end the process. Needs no GPU.
//   null_communicator libnccl.so.2
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

// Calls the function in a process of its own.
template <class Call>
bool try_it(void* nccl, const char* name, Call call) {
  void* const function = dlsym(nccl, name);
  if (!function) return std::printf("%s: not there\n", name), true;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(call(function));
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return std::printf("%s: %d\n", name, WEXITSTATUS(status)), true;
  return std::printf("%s: %s\n", name, strsignal(WTERMSIG(status))), false;
}

int main(int, char** files) {
  void* nccl = dlopen(files[1], RTLD_NOW);
  if (!nccl) return std::puts(dlerror()), 2;
  const bool splits = try_it(nccl, "ncclCommSplit", [](void* function) {
    void* child = nullptr;
    return reinterpret_cast<int (*)(void*, int, int, void**, void*)>(function)(nullptr, 0, 0,
                                                                               &child, nullptr);
  });
  const bool shrinks = try_it(nccl, "ncclCommShrink", [](void* function) {
    void* child = nullptr;
    int gone = 1;
    return reinterpret_cast<int (*)(void*, int*, int, void**, void*, int)>(function)(
        nullptr, &gone, 1, &child, nullptr, 0);
  });
  return !splits || !shrinks;
}
