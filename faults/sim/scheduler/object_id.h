// ObjectId: the number of an object that several fibers use, such as a mutex. Every object gets a
// number of its own when it is made; a copy of an object is another object, and so is an object
// that something is assigned to. An address would not do, because memory is used again. The numbers
// begin anew with each run, so that two runs that begin alike number alike.
//
// Threads: one OS thread. Cost: an increment for each object.
#pragma once

#include <cstdint>

namespace lockstep::simulation {

// How a step uses an object. Two uses by different fibers commute if both are reads, or if both are
// additions whose result nobody looks at.
enum class Access : std::uint8_t { kRead, kAdd, kWrite };

class ObjectId {
 public:
  ObjectId() : value_(++last_) {}
  ObjectId(const ObjectId&) : ObjectId() {}
  ObjectId& operator=(const ObjectId&) {
    renew();
    return *this;
  }
  ~ObjectId() = default;

  // The number of the object, or of one of its parts.
  std::uint64_t number(std::uint64_t part = 0) const { return value_ << kPartBits | part; }

  static void begin_run() { last_ = 0; }
  // For an object that outlives a run: call this at the beginning of each run.
  void renew() { value_ = ++last_; }

 private:
  static constexpr int kPartBits = 24;
  inline static std::uint64_t last_ = 0;
  std::uint64_t value_;
};

}  // namespace lockstep::simulation
