#include "faults/played_gpu/kernels.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "faults/played_gpu/connection.h"
#include "faults/played_gpu/queue.h"
#include "faults/played_gpu/work.h"
#include "faults/sim/nccl/ring.h"
#include "reducer/base/check.h"

namespace lockstep::played {
namespace {

using Kind = Function::Kind;

const std::uint32_t* abort_flag_of(const Layout& layout, const std::byte* comm) {
  const std::uint32_t* flag = nullptr;
  std::memcpy(&flag, comm + layout.comm_abort_flag, sizeof flag);
  return flag;
}

bool is_set(const std::uint32_t* flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0; }

// A wait shares the processor: the peer, and NCCL's own threads, need it to go on.
class Patience {
 public:
  void wait() {
    if (++waits_ < kYields)
      ::sched_yield();
    else
      ::usleep(kPauseUs);
  }

 private:
  static constexpr int kYields = 64;
  static constexpr useconds_t kPauseUs = 50;
  int waits_ = 0;
};

// The kernels that were launched and have not ended, by their communicators' abort flags.
class Launched {
 public:
  using Entry = std::list<const std::uint32_t*>::iterator;
  Entry add(const std::uint32_t* flag) {
    const std::lock_guard lock(mutex_);
    return flags_.insert(flags_.end(), flag);
  }
  void remove(Entry entry) {
    const std::lock_guard lock(mutex_);
    flags_.erase(entry);
    changed_.notify_all();
  }
  void wait_for_aborted() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::none_of(flags_.begin(), flags_.end(), is_set); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<const std::uint32_t*> flags_;
};

// Never destroyed: kernels may outlast main().
Launched& launched() {
  static auto* const all = new Launched;
  return *all;
}

// What all operations of a channel in one kernel share.
struct Channel {
  const Layout& layout;
  const CommBeginning& comm;
  const ChannelBeginning& channel;
  int ring_index = 0;
  const std::uint32_t* abort_flag = nullptr;
  const Reach& reach;

  Connection& sending(int peer, int index) const { return channel.peers[peer]->send[index]; }
  Connection& receiving(int peer, int index) const { return channel.peers[peer]->receive[index]; }
};

// The connections of a collective, to both neighbours in the ring, and its arithmetic. Each step
// passes a chunk in slices. False: the kernel is to abort.
class Ring {
 public:
  Ring(const Channel& on, const CollectiveWork& work, int steps_per_slice, int slices_per_chunk)
      : on_(on),
        type_(static_cast<NcclDataType>(work.function.type)),
        bytes_(sums(work) ? bytes_of_type(work.function.type) : 1),
        slices_(slices_per_chunk),
        smallest_(on.comm.buffer_bytes[kSimple] / kSteps / static_cast<int>(bytes_) *
                  steps_per_slice / 32),
        sending_(on.layout, on.sending(on.channel.next, 0), steps_per_slice, slices_per_chunk),
        receiving_(on.layout, on.receiving(on.channel.previous, 0), steps_per_slice,
                   slices_per_chunk) {
    if (!sums(work) || work.function.operation != kPreMulSum) return;
    const auto* const scalar = work.scalar_is_pointer
                                   ? on.reach(reinterpret_cast<const std::byte*>(work.scalar))
                                   : reinterpret_cast<const std::byte*>(&work.scalar);
    reduction_ = {true, simulated::read_scalar(type_, scalar)};
  }

  // What one step does. `own` and `result` may be null.
  struct Step {
    bool receives = false;
    bool sends = false;
    const std::byte* own = nullptr;
    std::byte* result = nullptr;
  };
  bool pass(Step step, std::int64_t elements) {
    elements = std::max<std::int64_t>(elements, 0);
    const std::int64_t in_all = std::int64_t{16} * slices_;
    const std::int64_t unit = std::max((elements + in_all - 1) / in_all * 16, smallest_);
    for (int slice = 0; slice < slices_; ++slice) {
      const std::int64_t part = std::min(unit, elements);
      const std::size_t bytes = static_cast<std::size_t>(part) * bytes_;
      if (!await(step)) return false;
      move(step, bytes);
      if (step.own != nullptr) step.own += bytes;
      if (step.result != nullptr) step.result += bytes;
      elements -= part;
    }
    return true;
  }

  bool send(const std::byte* own, std::int64_t n) { return pass({false, true, own, nullptr}, n); }
  bool copy_send(const std::byte* own, std::byte* to, std::int64_t n) {
    return pass({false, true, own, to == own ? nullptr : to}, n);
  }
  bool reduce_send(const std::byte* own, std::int64_t n) {
    return pass({true, true, own, nullptr}, n);
  }
  bool reduce_copy(const std::byte* own, std::byte* to, std::int64_t n) {
    return pass({true, false, own, to}, n);
  }
  bool reduce_copy_send(const std::byte* own, std::byte* to, std::int64_t n) {
    return pass({true, true, own, to}, n);
  }
  bool receive(std::byte* to, std::int64_t n) { return pass({true, false, nullptr, to}, n); }
  bool receive_send(std::byte* to, std::int64_t n) { return pass({true, true, nullptr, to}, n); }

  std::int64_t element_bytes() const { return static_cast<std::int64_t>(bytes_); }

 private:
  static bool sums(const CollectiveWork& work) {
    return work.function.kind != Kind::kAllGather && work.function.kind != Kind::kBroadcast;
  }
  bool await(const Step& step) const {
    Patience patience;
    while ((step.receives && !receiving_.is_ready()) || (step.sends && !sending_.is_ready())) {
      if (is_set(on_.abort_flag)) return false;
      patience.wait();
    }
    return true;
  }
  void move(const Step& step, std::size_t bytes) {
    const std::byte* const in = step.receives ? receiving_.begin() : nullptr;
    std::byte* const out = step.sends ? sending_.begin(bytes) : nullptr;
    std::byte* const first = step.result != nullptr ? step.result : out;
    if (bytes > 0) {
      if (step.own != nullptr && in != nullptr)
        simulated::add_to_sum(type_, reduction_, first, step.own, in, bytes);
      else if (step.own != nullptr && reduction_.is_scaled)
        simulated::begin_sum(type_, reduction_, first, step.own, bytes);
      else
        std::memmove(first, step.own != nullptr ? step.own : in, bytes);
      if (out != nullptr && first != out) std::memcpy(out, first, bytes);
    }
    if (step.receives) receiving_.post();
    if (step.sends) sending_.post();
  }

  const Channel& on_;
  const NcclDataType type_;
  const std::size_t bytes_;
  const int slices_;
  const std::int64_t smallest_;  // elements of a slice that is not the last
  simulated::NcclReduction reduction_;
  Sending sending_;
  Receiving receiving_;
};

bool play_all_reduce(const Channel& on, const CollectiveWork& work, const std::byte* in,
                     std::byte* out) {
  Ring ring(on, work, kSteps / 4, 2);
  const std::int64_t ranks = on.comm.ranks;
  const std::int64_t bytes = ring.element_bytes();
  std::int64_t chunk = work.chunk;
  for (std::int64_t done = 0; done < work.part; done += ranks * work.chunk) {
    const std::int64_t rest = work.part - done;
    if (rest < ranks * chunk) {
      const std::int64_t unit = 16 / bytes;
      chunk = ((rest + ranks - 1) / ranks + unit - 1) / unit * unit;
    }
    const auto place = [&](std::int64_t which) {
      const std::int64_t number = (on.ring_index + which) % ranks;
      return std::pair((work.offset + done + number * chunk) * bytes,
                       std::min(chunk, rest - number * chunk));
    };
    const auto [first, first_count] = place(ranks - 1);
    if (!ring.send(in + first, first_count)) return false;
    for (std::int64_t j = 2; j < ranks; ++j) {
      const auto [at, count] = place(ranks - j);
      if (!ring.reduce_send(in + at, count)) return false;
    }
    const auto [own, own_count] = place(0);
    if (!ring.reduce_copy_send(in + own, out + own, own_count)) return false;
    for (std::int64_t j = 1; j < ranks - 1; ++j) {
      const auto [at, count] = place(ranks - j);
      if (!ring.receive_send(out + at, count)) return false;
    }
    const auto [last, last_count] = place(1);
    if (!ring.receive(out + last, last_count)) return false;
  }
  return true;
}

bool play_all_gather(const Channel& on, const CollectiveWork& work, const std::byte* in,
                     std::byte* out) {
  Ring ring(on, work, kSteps / 4, 2);
  const int ranks = on.comm.ranks;
  for (std::int64_t done = 0; done < work.part; done += work.chunk) {
    const std::int64_t count = std::min(work.chunk, work.part - done);
    const std::int64_t at = work.offset + done;
    const auto place = [&](int which) { return out + at + on.channel.ring[which] * work.count; };
    if (!ring.copy_send(in + at, place(0), count)) return false;
    for (int j = 1; j < ranks - 1; ++j)
      if (!ring.receive_send(place(ranks - j), count)) return false;
    if (!ring.receive(place(1), count)) return false;
  }
  return true;
}

bool play_reduce_scatter(const Channel& on, const CollectiveWork& work, const std::byte* in,
                         std::byte* out) {
  Ring ring(on, work, kSteps / 4, 2);
  const int ranks = on.comm.ranks;
  const std::int64_t bytes = ring.element_bytes();
  for (std::int64_t done = 0; done < work.part; done += work.chunk) {
    const std::int64_t count = std::min(work.chunk, work.part - done);
    const std::int64_t at = work.offset + done;
    const auto place = [&](int which) {
      return in + (at + on.channel.ring[which] * work.count) * bytes;
    };
    if (!ring.send(place(ranks - 1), count)) return false;
    for (int j = 2; j < ranks; ++j)
      if (!ring.reduce_send(place(ranks - j), count)) return false;
    if (!ring.reduce_copy(place(0), out + at * bytes, count)) return false;
  }
  return true;
}

bool play_broadcast(const Channel& on, const CollectiveWork& work, const std::byte* in,
                    std::byte* out) {
  Ring ring(on, work, 1, 1);
  for (std::int64_t done = 0; done < work.part; done += work.chunk) {
    const std::int64_t count = std::min(work.chunk, work.part - done);
    const std::int64_t at = work.offset + done;
    const bool goes_on = on.channel.ring[0] == work.root ? ring.copy_send(in + at, out + at, count)
                         : on.channel.ring[1] == work.root ? ring.receive(out + at, count)
                                                           : ring.receive_send(out + at, count);
    if (!goes_on) return false;
  }
  return true;
}

bool play_reduce(const Channel& on, const CollectiveWork& work, const std::byte* in,
                 std::byte* out) {
  Ring ring(on, work, 1, 1);
  const std::int64_t bytes = ring.element_bytes();
  for (std::int64_t done = 0; done < work.part; done += work.chunk) {
    const std::int64_t count = std::min(work.chunk, work.part - done);
    const std::int64_t at = (work.offset + done) * bytes;
    const bool is_first = on.channel.ring[on.comm.ranks - 1] == work.root;
    const bool goes_on = is_first                    ? ring.send(in + at, count)
                         : on.comm.rank == work.root ? ring.reduce_copy(in + at, out + at, count)
                                                     : ring.reduce_send(in + at, count);
    if (!goes_on) return false;
  }
  return true;
}

bool play(const Channel& on, const CollectiveWork& work) {
  const std::byte* const in = on.reach(work.send_data);
  std::byte* const out = on.reach(work.receive_data);
  switch (work.function.kind) {
    case Kind::kAllReduce:
      return play_all_reduce(on, work, in, out);
    case Kind::kAllGather:
      return play_all_gather(on, work, in, out);
    case Kind::kReduceScatter:
      return play_reduce_scatter(on, work, in, out);
    case Kind::kBroadcast:
      return play_broadcast(on, work, in, out);
    case Kind::kReduce:
      return play_reduce(on, work, in, out);
    case Kind::kP2p:
      break;
  }
  LOCKSTEP_CHECK(false);
  return false;
}

// One send or one receive of a batch. All of a batch go on in turns, as none may wait for another.
class Transfer {
 public:
  Transfer(const Channel& on, Connection& connection, bool sends, std::byte* data,
           std::size_t bytes, std::size_t chunk)
      : sends_(sends), data_(data), bytes_(bytes), chunk_(chunk) {
    if (sends)
      sending_ = std::make_unique<Sending>(on.layout, connection, 1, 1);
    else
      receiving_ = std::make_unique<Receiving>(on.layout, connection, 1, 1);
  }
  bool is_done() const { return is_done_; }
  // Returns whether it could do anything.
  bool go_on() {
    if (is_done_ || !(sends_ ? sending_->is_ready() : receiving_->is_ready())) return false;
    const std::size_t part = std::min(chunk_, bytes_ - done_);
    if (sends_) {
      std::byte* const slot = sending_->begin(part);
      if (part > 0) std::memcpy(slot, data_ + done_, part);
      sending_->post();
    } else {
      if (part > 0) std::memcpy(data_ + done_, receiving_->begin(), part);
      receiving_->post();
    }
    done_ += part;
    is_done_ = done_ == bytes_;  // nothing at all is a message, too
    return true;
  }

 private:
  const bool sends_;
  std::byte* const data_;
  const std::size_t bytes_;
  const std::size_t chunk_;
  std::unique_ptr<Sending> sending_;
  std::unique_ptr<Receiving> receiving_;
  std::size_t done_ = 0;
  bool is_done_ = false;
};

// The part of a message that goes through a channel.
struct Share {
  bool is_any = false;
  std::size_t begin = 0;
  std::size_t end = 0;
};
Share share_of(const P2pWork& work, int channels, std::size_t bytes, int channel) {
  constexpr std::size_t kUnit = 4096;
  const int part = (channel - work.first_channel) & (work.channels - 1);
  if (part >= channels) return {};
  const auto parts = static_cast<std::size_t>(channels);
  const std::size_t each = ((bytes + parts - 1) / parts + kUnit - 1) / kUnit * kUnit;
  const auto number = static_cast<std::size_t>(part);
  return {true, std::min(number * each, bytes), std::min((number + 1) * each, bytes)};
}

bool play(const Channel& on, const std::vector<P2pWork>& works, int channel) {
  std::list<Transfer> transfers;
  for (const P2pWork& work : works) {
    const Share out = share_of(work, work.send_channels, work.send_bytes, channel);
    const Share in = share_of(work, work.receive_channels, work.receive_bytes, channel);
    std::byte* const from = on.reach(work.send_data);
    std::byte* const to = on.reach(work.receive_data);
    if (work.send_rank == on.comm.rank) {  // to itself
      if (out.is_any && out.end > out.begin)
        std::memmove(to + out.begin, from + out.begin, out.end - out.begin);
      continue;
    }
    if (out.is_any)
      transfers.emplace_back(on, on.sending(work.send_rank, 1), true, from + out.begin,
                             out.end - out.begin, chunk_bytes(work.send_chunk));
    if (in.is_any)
      transfers.emplace_back(on, on.receiving(work.receive_rank, 1), false, to + in.begin,
                             in.end - in.begin, chunk_bytes(work.receive_chunk));
  }
  Patience patience;
  while (std::any_of(transfers.begin(), transfers.end(), [](auto& t) { return !t.is_done(); })) {
    if (is_set(on.abort_flag)) return false;
    bool is_idle = true;
    for (Transfer& each : transfers)
      if (each.go_on()) is_idle = false;
    if (is_idle) patience.wait();
    if (!is_idle) patience = Patience();
  }
  return true;
}

class Kernel {
 public:
  Kernel(const Layout& layout, std::span<const int> row_to_id, std::span<const std::byte> arguments,
         Reach reach)
      : layout_(layout),
        bytes_(arguments.begin(), arguments.end()),
        reach_(std::move(reach)),
        work_(layout_, row_to_id, bytes_) {
    flag_ = abort_flag_of(layout_, work_.arguments().comm);
    entry_ = launched().add(flag_);
  }
  ~Kernel() { launched().remove(entry_); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  Status check() const {
    for (std::size_t nth = 0; nth < work_.channels().size(); ++nth)
      if (const auto batches = work_.batches_of(nth); !batches) return batches.error();
    return {};
  }

  void run() const {
    std::vector<std::thread> others;
    for (std::size_t nth = 1; nth < work_.channels().size(); ++nth)
      others.emplace_back([this, nth] { run_channel(nth); });
    run_channel(0);
    for (std::thread& each : others) each.join();
  }

 private:
  void run_channel(std::size_t nth) const {
    std::byte* const comm = work_.arguments().comm;
    const int number = work_.channels()[nth];
    const std::byte* const channel =
        comm + layout_.comm_channels + static_cast<std::size_t>(number) * layout_.channel_bytes;
    int ring_index = 0;
    std::memcpy(&ring_index, channel + layout_.ring_index, sizeof ring_index);
    const Channel on{layout_,
                     *reinterpret_cast<const CommBeginning*>(comm),
                     *reinterpret_cast<const ChannelBeginning*>(channel),
                     ring_index,
                     flag_,
                     reach_};
    const auto batches = work_.batches_of(nth);
    LOCKSTEP_CHECK(batches.has_value());
    for (const Batch& batch : *batches) {
      note_consumed(number, batch);
      for (const CollectiveWork& each : batch.collectives)
        if (!play(on, each)) return;
      if (!batch.p2p.empty() && !play(on, batch.p2p, number)) return;
    }
  }
  // The descriptions were copied, so that NCCL may write others in their place.
  void note_consumed(int channel, const Batch& batch) const {
    if (layout_.comm_work_consumed == 0 || work_.arguments().storage == kInArguments) return;
    std::uint32_t* consumed = nullptr;
    std::memcpy(&consumed, work_.arguments().comm + layout_.comm_work_consumed, sizeof consumed);
    __atomic_store_n(consumed + channel, batch.consumed, __ATOMIC_RELEASE);
  }

  const Layout layout_;
  const std::vector<std::byte> bytes_;
  const Reach reach_;
  const Work work_;
  const std::uint32_t* flag_ = nullptr;
  Launched::Entry entry_;
};

}  // namespace

Status launch(const Layout& layout, std::span<const int> row_to_id,
              std::span<const std::byte> arguments, NativeStream& stream, const Reach& reach) {
  const auto kernel = std::make_shared<Kernel>(layout, row_to_id, arguments, reach);
  LOCKSTEP_RETURN_IF_ERROR(kernel->check());
  submit(stream, [kernel] { kernel->run(); });
  return {};
}

void wait_for_aborted_kernels() { launched().wait_for_aborted(); }

}  // namespace lockstep::played
