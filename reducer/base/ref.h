// RefCounted and Ref provide intrusive shared ownership. The count is one word in the object
// instead of a control block, so that graph nodes and storages cost one allocation each.
// Threads: the count is atomic; the object itself is as safe as its class says.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace lockstep {

class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  std::uint32_t use_count() const { return count_.load(std::memory_order_acquire); }

 protected:
  RefCounted() = default;
  virtual ~RefCounted() = default;

 private:
  template <class T>
  friend class Ref;
  mutable std::atomic<std::uint32_t> count_{0};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  Ref(const Ref<U>& other)
      : object_(other.get()) {  // NOLINT: as with raw pointers, derived to base
    retain();
  }
  template <class U>
  Ref(Ref<U>&& other) noexcept : object_(other.detach()) {}  // NOLINT
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { reset(); }

  void reset() {
    if (T* object = std::exchange(object_, nullptr)) release(object);
  }
  T* detach() { return std::exchange(object_, nullptr); }  // The caller takes over the reference.
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }

 private:
  void retain() {
    if (object_)
      static_cast<const RefCounted*>(object_)->count_.fetch_add(1, std::memory_order_relaxed);
  }
  static void release(T* object) {
    const RefCounted* counted = object;
    if (counted->count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete counted;
  }
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace lockstep
