// lockstep::subject_of<R>(): the table of C functions (lockstep_subject.h) of a reducer that is a
// class in C++. R has a constructor and the members that it needs of those below; an exception of R
// is an error of the call, with its text.
//
//   class MyReducer {
//    public:
//     static constexpr std::uint64_t kCan = LOCKSTEP_CAN_NO_SYNC;          // without it: 0
//     MyReducer(const lockstep_setup& setup, const lockstep::Host& host);  // on every rank
//     void backward_end(std::int64_t pass, std::uint32_t outputs_left);    // reduces the gradients
//   };
//
// `static constexpr const char* kScale` says how R makes the average, as lockstep_subject.scale
// does. All other members are optional, with the parameters of the C functions but for `self` and
// `error`:
//
//   void forward_begin(std::uint32_t kind);
//   void forward_end(std::uint32_t kind, const std::uint8_t* reachable);
//   void backward_begin(std::int64_t pass, std::uint32_t is_first, const std::uint8_t* reachable);
//   void gradient_ready(std::uint32_t parameter, std::int64_t pass);
//   void backward_failed(std::int64_t pass);
//   void check_complete();                    // with LOCKSTEP_CAN_KEEP_OUTPUTS
//   void abort(const lockstep_error& cause);  // with LOCKSTEP_CAN_RECOVER
//   bool poisoned();                          // with LOCKSTEP_CAN_RECOVER
//
// Threads, order, ownership: as lockstep_subject.h says. A new group is a new object of R.
#pragma once

#include <lockstep_subject.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace lockstep {

// An error with what is known of it. The host's calls throw it; a reducer may throw its own.
class SubjectError : public std::runtime_error {
 public:
  explicit SubjectError(const lockstep_error& error)
      : std::runtime_error(error.detail), error_(error) {}

  // An error of this rank itself, which it is certain of.
  SubjectError(std::int32_t code, const std::string& detail) : std::runtime_error(detail) {
    error_.code = code;
    error_.rank = error_.collective = error_.bucket = error_.suspect = -1;
    error_.pass = error_.sequence = -1;
    error_.definite = 1;
    std::snprintf(error_.detail, sizeof error_.detail, "%s", detail.c_str());
  }

  const lockstep_error& error() const { return error_; }

 private:
  lockstep_error error_ = {};
};

// The functions of the host, which throw SubjectError. It refers to the host, which outlives the
// reducer.
class Host {
 public:
  explicit Host(const lockstep_host* host) : host_(host) {}

  // Starts a sum over all ranks, in place; `data` is the caller's until wait() has returned.
  std::uint64_t start_all_reduce(void* data, std::uint64_t count, std::uint32_t dtype,
                                 std::int32_t bucket = LOCKSTEP_OTHER) const {
    lockstep_collective collective = {};
    collective.data = data;
    collective.count = count;
    collective.op = LOCKSTEP_ALL_REDUCE_SUM;
    collective.dtype = dtype;
    collective.bucket = bucket;
    return start(collective);
  }
  std::uint64_t start(const lockstep_collective& collective) const {
    std::uint64_t ticket = 0;
    lockstep_error error = {};
    check(host_->start(host_, &collective, &ticket, &error), error);
    return ticket;
  }
  void wait(std::uint64_t ticket) const {
    lockstep_error error = {};
    check(host_->wait(host_, ticket, &error), error);
  }

  // The gradient, or null if it is undefined; `used` as in lockstep_subject.h.
  const void* gradient(std::uint32_t parameter, bool* used = nullptr) const {
    std::uint32_t is_used = 0;
    const void* const memory = host_->gradient(host_, parameter, &is_used);
    if (used != nullptr) *used = is_used != 0;
    return memory;
  }
  // The memory for the result of the pass; in backward_end() only.
  void* result(std::uint32_t parameter) const {
    lockstep_error error = {};
    void* const memory = host_->result(host_, parameter, &error);
    if (memory == nullptr) throw SubjectError(error);
    return memory;
  }

  void lock() const { host_->lock(host_); }
  void unlock() const { host_->unlock(host_); }
  const lockstep_host* get() const { return host_; }  // for the store and abort_group

 private:
  static void check(std::int32_t code, lockstep_error& error) {
    if (code == LOCKSTEP_OK) return;
    error.code = code;
    throw SubjectError(error);
  }

  const lockstep_host* host_;
};

namespace subject_detail {

template <class R>
struct Rank {
  Host host;
  std::uint32_t number;
  R reducer;
};
template <class R>
Rank<R>& of(void* self) {
  return *static_cast<Rank<R>*>(self);
}

inline std::int32_t fail(std::uint32_t rank, const SubjectError& thrown, lockstep_error* error) {
  const std::int64_t pass = error->pass;
  *error = thrown.error();
  if (error->pass < 0) error->pass = pass;
  if (error->rank < 0 && error->definite != 0) error->rank = static_cast<std::int32_t>(rank);
  return error->code != LOCKSTEP_OK ? error->code : std::int32_t{LOCKSTEP_INTERNAL};
}

// Calls the function; what it throws becomes an error of the call.
template <class F>
std::int32_t call(std::uint32_t rank, lockstep_error* error, const F& function) {
  try {
    function();
    return LOCKSTEP_OK;
  } catch (const SubjectError& thrown) {
    return fail(rank, thrown, error);
  } catch (const std::exception& thrown) {
    return fail(rank, {LOCKSTEP_INTERNAL, std::string("the reducer threw: ") + thrown.what()},
                error);
  } catch (...) {
    return fail(rank, {LOCKSTEP_INTERNAL, "the reducer threw what is no std::exception"}, error);
  }
}

template <class R>
constexpr std::uint64_t capabilities() {
  if constexpr (requires { R::kCan; })
    return R::kCan;
  else
    return 0;
}

template <class R>
void add_life(lockstep_subject& table) {
  table.create = [](const lockstep_setup* setup, const lockstep_host* host,
                    lockstep_error* error) -> void* {
    void* made = nullptr;
    const std::int32_t code = call(setup->rank, error, [&] {
      const Host of_rank(host);
      made = new Rank<R>{of_rank, setup->rank, R(*setup, of_rank)};
    });
    error->code = code;
    return made;
  };
  table.destroy = [](void* self) { delete &of<R>(self); };
}

template <class R>
void add_forward(lockstep_subject& table) {
  table.forward_begin = [](void* self, std::uint32_t kind, lockstep_error* error) {
    return call(of<R>(self).number, error, [&] {
      if constexpr (requires(R & r) { r.forward_begin(kind); })
        of<R>(self).reducer.forward_begin(kind);
    });
  };
  table.forward_end = [](void* self, std::uint32_t kind, const std::uint8_t* reachable,
                         lockstep_error* error) {
    return call(of<R>(self).number, error, [&] {
      if constexpr (requires(R & r) { r.forward_end(kind, reachable); })
        of<R>(self).reducer.forward_end(kind, reachable);
    });
  };
}

template <class R>
void add_backward(lockstep_subject& table) {
  table.backward_begin = [](void* self, std::int64_t pass, std::uint32_t is_first,
                            const std::uint8_t* reachable, lockstep_error* error) {
    return call(of<R>(self).number, error, [&] {
      if constexpr (requires(R & r) { r.backward_begin(pass, is_first, reachable); })
        of<R>(self).reducer.backward_begin(pass, is_first, reachable);
    });
  };
  table.gradient_ready = [](void* self, std::uint32_t parameter, std::int64_t pass,
                            lockstep_error* error) {
    return call(of<R>(self).number, error, [&] {
      if constexpr (requires(R & r) { r.gradient_ready(parameter, pass); })
        of<R>(self).reducer.gradient_ready(parameter, pass);
    });
  };
  table.backward_end = [](void* self, std::int64_t pass, std::uint32_t outputs_left,
                          lockstep_error* error) {
    return call(of<R>(self).number, error,
                [&] { of<R>(self).reducer.backward_end(pass, outputs_left); });
  };
  table.backward_failed = [](void* self, std::int64_t pass, lockstep_error* error) {
    return call(of<R>(self).number, error, [&] {
      if constexpr (requires(R & r) { r.backward_failed(pass); })
        of<R>(self).reducer.backward_failed(pass);
    });
  };
}

template <class R>
void add_recovery(lockstep_subject& table) {
  table.check_complete = [](void* self, lockstep_error* error) {
    return call(of<R>(self).number, error, [&] {
      if constexpr (requires(R & r) { r.check_complete(); }) of<R>(self).reducer.check_complete();
    });
  };
  table.abort = [](void* self, const lockstep_error* cause) {
    lockstep_error ignored = {};
    (void)call(of<R>(self).number, &ignored, [&] {
      if constexpr (requires(R & r) { r.abort(*cause); }) of<R>(self).reducer.abort(*cause);
    });
  };
  table.poisoned = [](void* self) -> std::int32_t {
    if constexpr (requires(R & r) { r.poisoned(); }) return of<R>(self).reducer.poisoned() ? 1 : 0;
    return 0;
  };
}

}  // namespace subject_detail

// The table of the reducer R, which lives as long as the program. `name` must, too.
template <class R>
const lockstep_subject* subject_of(const char* name) {
  static const lockstep_subject table = [name] {
    lockstep_subject made = {};
    made.size = sizeof made;
    made.abi = LOCKSTEP_ABI;
    made.name = name;
    made.capabilities = subject_detail::capabilities<R>();
    if constexpr (requires { R::kScale; }) made.scale = R::kScale;
    subject_detail::add_life<R>(made);
    subject_detail::add_forward<R>(made);
    subject_detail::add_backward<R>(made);
    subject_detail::add_recovery<R>(made);
    return made;
  }();
  return &table;
}

}  // namespace lockstep
