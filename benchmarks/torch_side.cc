#include "benchmarks/torch_side.h"

#include <dlfcn.h>

namespace lockstep::benchmarks {

Result<const TorchSide*> load_torch_side(const std::string& file) {
  // Deep binding: its libtorch finds its own Gloo before ours.
  void* const module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (module == nullptr) return failed(Status(Code::kInternal, ::dlerror()));
  using Entry = const TorchSide* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(module, kTorchSide));
  if (entry == nullptr)
    return failed(Status(Code::kInternal, file + " is no module of ci/bench torch"));
  return entry();
}

}  // namespace lockstep::benchmarks
