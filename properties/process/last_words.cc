#include "properties/process/last_words.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <thread>

namespace lockstep::properties {
namespace {

constexpr std::size_t kMaxFrames = 40;
constexpr std::size_t kMaxThreads = 16;
constexpr std::size_t kNameBytes = 200;
constexpr int kOwnFrames = 2;  // the handler, and what the kernel returns to
constexpr int kAskSignal = SIGQUIT;
constexpr std::size_t kSignalStackBytes = std::size_t{128} << 10;
constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

struct Frame {
  std::uint64_t offset = 0;  // in the file
  std::array<char, kNameBytes> file{};
  std::array<char, kNameBytes> symbol{};  // as the linker knows it; empty if it knows none
};

struct Stack {
  std::uint32_t frames = 0;
  std::array<Frame, kMaxFrames> frame{};
};

void copy(const char* from, std::array<char, kNameBytes>& to) {
  if (from == nullptr) return;
  // The end of a long path says more than its beginning.
  const std::size_t length = std::strlen(from);
  const char* const begin = length < to.size() ? from : from + (length - to.size() + 1);
  std::strncpy(to.data(), begin, to.size() - 1);
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

}  // namespace

struct LastWords::Shared {
  std::atomic<std::uint32_t> threads{0};  // stacks that were begun
  std::atomic<std::uint32_t> written{0};
  std::array<Stack, kMaxThreads> stack{};

  static std::atomic<Shared*> listening;

  void write_stack() {
    const std::uint32_t which = threads.fetch_add(1);
    if (which >= stack.size()) return;
    std::array<void*, kMaxFrames + kOwnFrames> addresses{};
    const int found = ::backtrace(addresses.data(), static_cast<int>(addresses.size()));
    Stack& out = stack[which];
    for (int i = kOwnFrames; i < found; ++i) {
      Dl_info info{};
      Frame& frame = out.frame[out.frames++];
      if (::dladdr(addresses[static_cast<std::size_t>(i)], &info) == 0) continue;
      frame.offset = reinterpret_cast<std::uint64_t>(addresses[static_cast<std::size_t>(i)]) -
                     reinterpret_cast<std::uint64_t>(info.dli_fbase);
      copy(info.dli_fname, frame.file);
      copy(info.dli_sname, frame.symbol);
    }
    written.fetch_add(1);
  }
};

std::atomic<LastWords::Shared*> LastWords::Shared::listening{nullptr};

namespace {

// The handlers of one process; a subject has no part in this.
void (*g_write_stack)() = nullptr;

extern "C" void on_crash(int signal) {
  ::signal(signal, SIG_DFL);  // also if writing crashes
  if (g_write_stack != nullptr) g_write_stack();
  ::raise(signal);
}

extern "C" void on_ask(int) {
  const int error = errno;
  if (g_write_stack != nullptr) g_write_stack();
  errno = error;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction current {};
  if (::sigaction(signal, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

LastWords::LastWords() {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) shared_ = new (memory) Shared;
}

LastWords::~LastWords() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

void LastWords::listen() {
  if (shared_ == nullptr) return;
  Shared::listening = shared_;
  g_write_stack = [] {
    if (Shared* const shared = Shared::listening) shared->write_stack();
  };
  std::array<void*, 1> first{};
  (void)::backtrace(first.data(), 1);  // loads what it needs before there is a crash
  // A stack that is full has no room for a handler.
  static const auto memory = std::make_unique<std::array<char, kSignalStackBytes>>();
  stack_t stack{};
  stack.ss_sp = memory->data();
  stack.ss_size = memory->size();
  ::sigaltstack(&stack, nullptr);
  for (const int signal : kCrashes) handle(signal, on_crash);
  handle(kAskSignal, on_ask);
}

void drop_handlers_of_ucx() {
  for (const int signal : kCrashes) {
    struct sigaction current {};
    Dl_info info{};
    (void)::sigaction(signal, nullptr, &current);
    const bool has_file = ::dladdr(reinterpret_cast<void*>(current.sa_handler), &info) != 0;
    if (has_file && std::strstr(info.dli_fname, "/libucs.so")) ::signal(signal, SIG_DFL);
  }
}

void LastWords::ask(pid_t process, std::chrono::milliseconds patience) const {
  if (shared_ == nullptr || process <= 0) return;
  std::uint32_t asked = 0;
  std::error_code ignored;
  const std::string threads = fmt::format("/proc/{}/task", process);
  for (const auto& thread : std::filesystem::directory_iterator(threads, ignored)) {
    const int id = std::atoi(thread.path().filename().c_str());
    if (asked < kMaxThreads && ::syscall(SYS_tgkill, process, id, kAskSignal) == 0) ++asked;
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  while (shared_->written < asked && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

std::string LastWords::take() {
  if (shared_ == nullptr) return {};
  std::string out;
  std::error_code ignored;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  const std::uint32_t stacks = std::min<std::uint32_t>(shared_->threads, kMaxThreads);
  for (std::uint32_t s = 0; s < stacks; ++s) {
    Stack& stack = shared_->stack[s];
    std::uint32_t own = 0;  // frames of this program, which say little to whoever wrote the subject
    if (stacks > 1 && stack.frames > 0) out += fmt::format("  thread {}:\n", s);
    for (std::uint32_t f = 0; f < std::min<std::uint32_t>(stack.frames, kMaxFrames); ++f) {
      const Frame& frame = stack.frame[f];
      const std::string file = frame.file.data();
      if (!self.empty() && std::string_view(self).ends_with(file) && !file.empty()) {
        ++own;
        continue;
      }
      if (file.empty()) continue;
      const std::string symbol = frame.symbol.data();
      out += fmt::format("    {} ({}+{:#x})\n", symbol.empty() ? "?" : demangled(symbol.c_str()),
                         file, frame.offset);
    }
    if (own > 0) out += fmt::format("    and {} of this program\n", own);
    stack = Stack();
  }
  shared_->threads = shared_->written = 0;
  return out;
}

}  // namespace lockstep::properties
