#include "faults/played_gpu/load.h"

#include <dlfcn.h>
#include <link.h>

#include <utility>

#include "faults/played_gpu/gpu.h"
#include "faults/played_gpu/layout.h"
#include "faults/played_gpu/redirect.h"
#include "faults/played_gpu/symbols.h"
#include "reducer/base/loader_error.h"

namespace lockstep::played {
namespace {

Status refused(const std::string& what) { return Status(Code::kInvalidArgument, what); }

// Where a library was loaded, and from which file.
struct Place {
  std::byte* address = nullptr;
  std::string file;
};
Place place_of(void* library) {
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return {reinterpret_cast<std::byte*>(map->l_addr), map->l_name};
}

// Later loads of this name find the played library.
Status load_played(const std::string& file) {
  if (::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
  return refused(std::string("the played GPU is not complete: ") + ::dlerror());
}

// What NCCL calls and is not played fails by its name.
using Refusal = int (*)();
template <int kNumber>
struct Refusals {
  static std::string name;
  static int refuse() {
    return Gpu::one().refuse("NCCL calls " + name + ", which the played GPU does not have");
  }
};
template <int kNumber>
std::string Refusals<kNumber>::name;

template <int... kNumbers>
const void* refusal_of(const std::string& name, std::integer_sequence<int, kNumbers...>) {
  const void* found = nullptr;
  (void)((Refusals<kNumbers>::name.empty() || Refusals<kNumbers>::name == name
              ? (Refusals<kNumbers>::name = name,
                 found = reinterpret_cast<const void*>(&Refusals<kNumbers>::refuse), true)
              : false) ||
         ...);
  return found;
}

// Null when there are more such functions than NCCL has ever called.
const void* refusal_of(const std::string& name) {
  constexpr int kMost = 64;
  return refusal_of(name, std::make_integer_sequence<int, kMost>());
}

Result<std::span<const int>> function_table(const Layout& layout, const Symbols& symbols,
                                            const Place& place) {
  const Symbol* const table = symbols.find("ncclDevFuncRowToId");
  if (table == nullptr)
    return failed(
        refused(place.file + " cannot be played: it has no table of its kernels' functions"));
  const std::size_t rows = rows_of(layout);
  const std::size_t found = table->bytes / sizeof(int);
  if (found != rows + 1)
    return failed(refused(place.file + " cannot be played: its table of functions has " +
                          std::to_string(found) + " rows instead of " + std::to_string(rows + 1) +
                          ", so it is another build than the one that is known"));
  return std::span(reinterpret_cast<const int*>(place.address + table->address), rows);
}

}  // namespace

Result<std::size_t> redirect_runtime(void* library) {
  const Place place = place_of(library);
  Result<Symbols> symbols = Symbols::read(place.file);
  if (!symbols) return failed(symbols.error());
  const auto calls = find_calls(*symbols, place.address, "cuda");
  if (!calls) return failed(calls.error());
  if (calls->empty()) {
    if (::dlsym(library, "cudaMalloc") == runtime_function("cudaMalloc")) return std::size_t{0};
    return failed(refused(place.file +
                          " cannot be played: it neither holds a CUDA runtime nor was linked with "
                          "the played libcudart.so"));
  }
  for (const Call& each : *calls)
    if (runtime_function(each.callee) == nullptr && refusal_of(each.callee) == nullptr)
      return failed(refused(place.file + " cannot be played: it calls too many functions of CUDA"));
  return redirect(place.address, *calls, [](const std::string& name) {
    const void* const played = runtime_function(name);
    return played != nullptr ? played : refusal_of(name);
  });
}

Status load(const std::string& library, const std::string& folder) {
  if (Gpu::one().nccl() != nullptr) return {};
  for (const char* file : {"/libnvidia-ml.so.1", "/libcudart.so.12", "/libcudart.so.13"})
    LOCKSTEP_RETURN_IF_ERROR(load_played(folder + file));
  const auto cannot_load = [&](const std::string& why) {
    return refused("cannot load '" + library + "': " + why +
                   "; name another library with LOCKSTEP_NCCL=FILE");
  };
  if (const std::string why = cut_off(library); !why.empty()) return cannot_load(why);
  void* const nccl = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nccl == nullptr) return cannot_load(loader_error(library));
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(nccl, "ncclGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0)
    return refused("'" + library + "' is not NCCL: it has no ncclGetVersion");
  const Result<Layout> layout = layout_of(version);
  if (!layout) return layout.error();
  const Place place = place_of(nccl);
  Result<Symbols> symbols = Symbols::read(place.file);
  if (!symbols) return symbols.error();
  const auto table = function_table(*layout, *symbols, place);
  if (!table) return table.error();
  const Result<std::size_t> calls = redirect_runtime(nccl);
  if (!calls) return calls.error();
  Gpu::one().use({*layout, *table, place.address, std::move(*symbols)});
  return {};
}

}  // namespace lockstep::played
