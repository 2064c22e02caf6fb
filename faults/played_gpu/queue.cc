#include "faults/played_gpu/queue.h"

#include <thread>
#include <utility>

namespace lockstep::played {

Queue::Queue()
    : NativeStream{[](void* native, void (*body)(void*), void* data) {
                     static_cast<Queue*>(static_cast<NativeStream*>(native))->push([body, data] {
                       body(data);
                     });
                   },
                   [](void*, const void* data) {
                     return static_cast<std::byte*>(const_cast<void*>(data));
                   }} {}

Queue* Queue::make() {
  const std::shared_ptr<Queue> made(new Queue);
  made->self_ = made;
  return made.get();
}

void Queue::give_up() {
  std::shared_ptr<Queue> last;  // outlives the lock
  const std::lock_guard lock(mutex_);
  is_given_up_ = true;
  changed_.notify_all();
  last = std::move(self_);
}

void Queue::push(std::function<void()> body) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(body));
  changed_.notify_all();
  if (is_running_) return;
  is_running_ = true;
  std::thread([self = self_] { run(self); }).detach();
}

void Queue::run(const std::shared_ptr<Queue>& self) {
  std::unique_lock lock(self->mutex_);
  for (;;) {
    self->changed_.wait(lock, [&] { return self->is_given_up_ || !self->work_.empty(); });
    if (self->work_.empty()) return;
    const auto body = std::move(self->work_.front());
    self->work_.pop_front();
    lock.unlock();
    body();
    lock.lock();
  }
}

void submit(NativeStream& stream, std::function<void()> body) {
  auto kept = std::make_unique<std::function<void()>>(std::move(body));
  stream.submit(
      &stream,
      [](void* data) {
        const std::unique_ptr<std::function<void()>> owned(
            static_cast<std::function<void()>*>(data));
        (*owned)();
      },
      kept.release());
}

void Marker::record(NativeStream& stream) {
  const auto point = std::make_shared<Point>();
  {
    const std::lock_guard lock(mutex_);
    last_ = point;
  }
  submit(stream, [point] {
    const std::lock_guard lock(point->mutex);
    point->has_passed = true;
    point->changed.notify_all();
  });
}

std::shared_ptr<Marker::Point> Marker::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

bool Marker::has_passed() const {
  const std::shared_ptr<Point> point = last();
  if (point == nullptr) return true;
  const std::lock_guard lock(point->mutex);
  return point->has_passed;
}

void Marker::wait_for(Point* point) {
  if (point == nullptr) return;
  std::unique_lock lock(point->mutex);
  point->changed.wait(lock, [&] { return point->has_passed; });
}

void Marker::hold(NativeStream& stream) const {
  submit(stream, [point = last()] { wait_for(point.get()); });
}

void Marker::wait() const { wait_for(last().get()); }

void drain(NativeStream& stream) {
  Marker marker;
  marker.record(stream);
  marker.wait();
}

}  // namespace lockstep::played
