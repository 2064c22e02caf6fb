// Communicators as NCCL lays them out for its kernels, for tests: ranks in one process, and a
// thread that moves messages between them as NCCL's proxies do, of the sizes that the kernels say.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "faults/played_gpu/kernels.h"
#include "faults/played_gpu/layout.h"
#include "faults/played_gpu/queue.h"

namespace lockstep::played {

constexpr std::size_t kTestStepBytes = 512;

// One end's memory of a connection.
struct TestEnd {
  std::vector<std::byte> buffer = std::vector<std::byte>(kSteps * kTestStepBytes);
  std::vector<std::byte> fifo = std::vector<std::byte>(kSteps * 32);
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
};

class TestLink {
 public:
  TestLink(const Layout& layout, int steps_per_slice, bool has_offsets)
      : layout_(layout), steps_(steps_per_slice), has_offsets_(has_offsets) {
    for (TestEnd* end : {&sender_, &receiver_})
      for (std::size_t step = 0; step < kSteps; ++step) write_entry(*end, step);
  }
  void connect(Connection& send, Connection& receive) {
    for (auto [connection, end] : {std::pair(&send, &sender_), std::pair(&receive, &receiver_)}) {
      *connection = {};
      connection->buffers[kSimple] = end->buffer.data();
      connection->head = &end->head;
      connection->tail = &end->tail;
      connection->fifo = end->fifo.data();
      connection->step_bytes = kTestStepBytes;
    }
  }
  // Moves a message if there is one and the receiver has room. Returns whether it did.
  bool move() {
    const auto steps = static_cast<std::uint64_t>(steps_);
    if (__atomic_load_n(&sender_.tail, __ATOMIC_ACQUIRE) < moved_ + steps) return false;
    if (__atomic_load_n(&receiver_.head, __ATOMIC_ACQUIRE) + kSteps < moved_ + steps) return false;
    std::int64_t size = 0;
    std::memcpy(&size, entry(sender_, moved_) + layout_.fifo_size, sizeof size);
    std::memcpy(slot(receiver_), slot(sender_), static_cast<std::size_t>(size));
    std::memset(slot(sender_), 0xff, static_cast<std::size_t>(size));
    bytes_ += static_cast<std::size_t>(size);
    moved_ += steps;
    __atomic_store_n(&receiver_.tail, moved_, __ATOMIC_RELEASE);
    __atomic_store_n(&sender_.head, moved_, __ATOMIC_RELEASE);
    return true;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* entry(TestEnd& end, std::uint64_t step) const {
    return end.fifo.data() + step % kSteps * layout_.fifo_entry_bytes;
  }
  std::size_t offset(std::uint64_t step) const {
    return (has_offsets_ ? kSteps - 1 - step % kSteps : step % kSteps) * kTestStepBytes;
  }
  std::byte* slot(TestEnd& end) const { return end.buffer.data() + offset(moved_); }
  void write_entry(TestEnd& end, std::uint64_t step) const {
    const std::int32_t mode = has_offsets_ ? 1 : 0;
    const auto place = static_cast<std::int64_t>(offset(step));
    std::memcpy(entry(end, step), &mode, sizeof mode);
    std::memcpy(entry(end, step) + layout_.fifo_offset, &place, layout_.fifo_offset_bytes);
  }

  const Layout& layout_;
  const int steps_;
  const bool has_offsets_;
  TestEnd sender_;
  TestEnd receiver_;
  std::uint64_t moved_ = 0;
  std::size_t bytes_ = 0;
};

class TestRanks {
 public:
  // Of a collective, in which a message has as many steps.
  TestRanks(const Layout& layout, int ranks, int steps_per_slice) : layout_(layout) {
    for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<Rank>());
    for (int rank = 0; rank < ranks; ++rank) lay_out(rank);
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        connect(from, to, 0, steps_per_slice);
        connect(from, to, 1, 1);
      }
    }
    proxy_ = std::thread([this] {
      while (!is_over_) {
        bool is_idle = true;
        for (auto& [key, link] : links_) is_idle = !link->move() && is_idle;
        if (is_idle) std::this_thread::yield();
      }
    });
  }
  ~TestRanks() {
    for (auto& rank : ranks_) drain(*rank->queue);
    for (auto& rank : ranks_) rank->queue->give_up();
    is_over_ = true;
    proxy_.join();
  }

  // Launches a kernel with these descriptions, of one kind and function.
  Status launch(int rank, std::uint32_t kind, std::uint32_t function, const std::byte* works,
                std::size_t count, std::size_t bytes_each) {
    constexpr std::size_t kBegin = sizeof(KernelArguments) + sizeof(WorkBatch);
    std::vector<std::byte> arguments(kBegin + count * bytes_each);
    const KernelArguments head{this->rank(rank).comm.data(), 1, kInArguments, 0, nullptr};
    const WorkBatch batch{kind << 15 | function << 17, kBegin, (std::uint64_t{1} << count) - 1};
    std::memcpy(arguments.data(), &head, sizeof head);
    std::memcpy(arguments.data() + sizeof head, &batch, sizeof batch);
    std::memcpy(arguments.data() + kBegin, works, count * bytes_each);
    return played::launch(layout_, rows_, arguments, *this->rank(rank).queue,
                          [](const std::byte* data) { return const_cast<std::byte*>(data); });
  }
  void use_rows(std::vector<int> rows) { rows_ = std::move(rows); }
  void abort(int rank) { __atomic_store_n(&this->rank(rank).abort_flag, 1U, __ATOMIC_RELEASE); }
  void wait() {
    for (auto& rank : ranks_) drain(*rank->queue);
  }
  std::size_t bytes_moved(int from, int to, int index) {
    return links_[{from, to, index}]->bytes();
  }

 private:
  struct Rank {
    std::vector<std::byte> comm;
    std::vector<Peer> peers;
    std::vector<Peer*> pointers;
    std::vector<std::int32_t> ring;
    std::uint32_t abort_flag = 0;
    Queue* queue = Queue::make();
  };
  Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }

  void lay_out(int number) {
    const int size = static_cast<int>(ranks_.size());
    Rank& it = rank(number);
    it.comm.resize(layout_.comm_channels + layout_.channel_bytes);
    it.peers.resize(ranks_.size());
    for (Peer& peer : it.peers) it.pointers.push_back(&peer);
    for (int i = 0; i < size; ++i) it.ring.push_back((number + i) % size);
    const CommBeginning comm{number, size, 0, 0, {0, 0, kSteps * kTestStepBytes}, kTestStepBytes};
    const std::uint32_t* const flag = &it.abort_flag;
    const ChannelBeginning channel{it.pointers.data(), (number + size - 1) % size,
                                   (number + 1) % size, it.ring.data()};
    std::byte* const its_channel = it.comm.data() + layout_.comm_channels;
    std::memcpy(it.comm.data(), &comm, sizeof comm);
    std::memcpy(it.comm.data() + layout_.comm_abort_flag, &flag, sizeof flag);
    std::memcpy(its_channel, &channel, sizeof channel);
    std::memcpy(its_channel + layout_.ring_index, &number, sizeof number);
  }
  void connect(int from, int to, int index, int steps) {
    auto& link = links_[{from, to, index}];
    link = std::make_unique<TestLink>(layout_, steps, index == 1);
    link->connect(rank(from).peers[static_cast<std::size_t>(to)].send[index],
                  rank(to).peers[static_cast<std::size_t>(from)].receive[index]);
  }

  const Layout layout_;
  std::vector<int> rows_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<TestLink>> links_;
  std::atomic<bool> is_over_ = false;
  std::thread proxy_;
};

}  // namespace lockstep::played
