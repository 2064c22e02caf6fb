#include "faults/sim/network.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

namespace {

Duration microseconds(std::uint32_t count) { return std::chrono::microseconds(count); }

}  // namespace

void SimNetwork::reset(simulation::Scheduler& scheduler, faults::Injector& injector,
                       Latency latency, std::uint64_t seed) {
  LOCKSTEP_CHECK(latency.least >= Duration(0));
  LOCKSTEP_CHECK(latency.spread >= Duration(0));
  for (std::size_t i = 0; i < open_; ++i)
    for (Mesh::Link& link : meshes_[i]->links_) meshes_[i]->drop(link);
  open_ = 0;
  plan_id_.renew();
  meshes_id_.renew();
  scheduler_ = &scheduler;
  injector_ = &injector;
  latency_ = latency;
  seed_ = seed;
}

Mesh& SimNetwork::mesh(std::int64_t generation, std::span<const std::uint32_t> members) {
  // Whoever comes first opens the same mesh, and no one sees the order of the meshes.
  simulation::Scheduler::touch(meshes_id_, simulation::Access::kAdd);
  for (const std::uint32_t member : members) touch_plan(member | kExit, simulation::Access::kRead);
  for (std::size_t i = 0; i < open_; ++i) {
    Mesh& mesh = *meshes_[i];
    if (mesh.generation_ != generation) continue;
    LOCKSTEP_CHECK(
        std::equal(members.begin(), members.end(), mesh.members_.begin(), mesh.members_.end()));
    return mesh;
  }
  if (open_ == meshes_.size()) meshes_.push_back(std::make_unique<Mesh>());
  Mesh& mesh = *meshes_[open_++];
  mesh.open(*this, generation, members);
  return mesh;
}

void SimNetwork::exit_rank(std::uint32_t world_rank) {
  simulation::Scheduler::touch(meshes_id_, simulation::Access::kWrite);
  touch_plan(world_rank | kExit, simulation::Access::kWrite);
  for (std::size_t i = 0; i < open_; ++i) {
    Mesh& mesh = *meshes_[i];
    for (int rank = 0; rank < mesh.size(); ++rank) {
      if (mesh.world_rank(rank) != world_rank) continue;
      mesh.close(rank);
      mesh.interrupt(rank);
    }
  }
}

Message* SimNetwork::take(std::size_t bytes) {
  Message* message = free_;
  if (message == nullptr) {
    messages_.push_back(std::make_unique<Message>());
    message = messages_.back().get();
  } else {
    free_ = message->next;
  }
  if (message->capacity < bytes) {
    message->far = std::make_unique<std::byte[]>(bytes);
    message->data = message->far.get();
    message->capacity = bytes;
  }
  message->bytes = bytes;
  message->next = nullptr;
  return message;
}

Duration SimNetwork::latency_of(std::uint64_t link, std::uint32_t number) const {
  if (latency_.spread == Duration(0)) return latency_.least;
  std::uint64_t z = seed_ + (link << 32 | number) * 0x9e37'79b9'7f4a'7c15U;
  z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9U;
  z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebU;
  z ^= z >> 31;
  const auto values = static_cast<std::uint64_t>(latency_.spread.count()) + 1;
  return latency_.least + Duration(static_cast<std::int64_t>(z % values));
}

void Mesh::open(SimNetwork& network, std::int64_t generation,
                std::span<const std::uint32_t> members) {
  LOCKSTEP_CHECK(!members.empty());
  network_ = &network;
  scheduler_ = network.scheduler_;
  generation_ = generation;
  members_.assign(members.begin(), members.end());
  links_.assign(members.size() * members.size(), Link{});
  endpoints_.assign(members.size(), Endpoint{});
  for (int rank = 0; rank < size(); ++rank) {
    LOCKSTEP_CHECK_LT(world_rank(rank), network.injector_->world());
    if (!network.exited(world_rank(rank))) continue;
    close(rank);
    interrupt(rank);
  }
}

void Mesh::attach(int rank) {
  LOCKSTEP_CHECK_LT(rank, size());
  LOCKSTEP_CHECK(!endpoint(rank).is_attached);
  endpoint(rank).is_attached = true;
}

void Mesh::set_worker(int rank, simulation::FiberId worker) { endpoint(rank).worker = worker; }

bool Mesh::is_interrupted(int rank) const {
  return endpoints_[static_cast<std::size_t>(rank)].is_interrupted;
}

void Mesh::drop(Link& link) {
  while (link.head != nullptr) {
    Message* message = link.head;
    link.head = message->next;
    release(message);
  }
  link.tail = nullptr;
  link.received = link.sent;
  touch_state(link);
}

void Mesh::release(Message* message) {
  message->next = network_->free_;
  network_->free_ = message;
}

void Mesh::wake(int rank) {
  Endpoint& there = endpoint(rank);
  simulation::Scheduler::touch(there.place.id, simulation::Access::kWrite);
  if (!there.place.waiters.empty()) scheduler_->wake_all(there.place);
}

bool Mesh::wait(int rank, Duration until) {
  return scheduler_->wait_at(endpoint(rank).place, until);
}

Trouble Mesh::send(int from, int to, std::int64_t sequence, std::uint32_t part,
                   std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(from != to);
  touch_interruption(from);
  if (endpoint(from).is_interrupted) return Trouble::kInterrupted;
  Link& out = link(from, to);
  const faults::MessageFault fault =
      network_->injector_of(world_rank(from)).on_message(world_rank(from), world_rank(to));
  touch_message(out, out.sent);
  if (fault.reset) reset_pair(from, to);
  if (out.state != State::kOpen)
    return out.state == State::kClosed ? Trouble::kClosed : Trouble::kReset;

  const auto index = static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(size()) +
                     static_cast<std::uint64_t>(to);
  const std::uint32_t number = out.sent++;
  Traffic& sent = endpoint(from).sent;
  ++sent.messages;
  sent.bytes += bytes.size();
  const auto link_id = static_cast<std::uint64_t>(generation_) << 8 | index;
  scheduler_->trace((link_id << 40) + (static_cast<std::uint64_t>(sequence) << 24) +
                    std::uint64_t{number} * 64 + bytes.size());
  if (fault.stall) out.is_stalled = true;
  if (!out.is_stalled) {
    Message* message = network_->take(bytes.size());
    if (!bytes.empty()) std::memcpy(message->data, bytes.data(), bytes.size());
    message->sequence = sequence;
    message->part = part;
    const Duration arrival =
        scheduler_->now() + network_->latency_of(link_id, number) + microseconds(fault.delay_us);
    message->arrival = out.last_arrival = std::max(arrival, out.last_arrival);
    (out.tail == nullptr ? out.head : out.tail->next) = message;
    out.tail = message;
    if (out.head == message && endpoint(to).waits_for == from) wake(to);
  }
  return Trouble::kNone;
}

Mesh::Received Mesh::receive(int to, int from, Duration until) {
  Endpoint& here = endpoint(to);
  Link& in = link(from, to);
  LOCKSTEP_CHECK_EQ(here.waits_for, kNone);
  here.place.what = "a message on link";
  here.place.from = static_cast<std::uint32_t>(from);
  here.place.to = static_cast<std::uint32_t>(to);
  Received out;
  for (;;) {
    touch_interruption(to);
    touch_message(in, in.received);
    if (here.is_interrupted) {
      out.trouble = Trouble::kInterrupted;
      break;
    }
    if (in.head != nullptr && in.head->arrival <= scheduler_->now()) {
      out.message = in.head;
      in.head = out.message->next;
      if (in.head == nullptr) in.tail = nullptr;
      ++in.received;
      break;
    }
    if (in.state == State::kReset || (in.state == State::kClosed && in.head == nullptr)) {
      out.trouble = in.state == State::kReset ? Trouble::kReset : Trouble::kClosed;
      break;
    }
    if (until <= scheduler_->now()) {
      out.trouble = Trouble::kTimeout;
      break;
    }
    here.waits_for = from;
    here.place.waker = endpoint(from).worker;
    wait(to, in.head == nullptr ? until : std::min(until, in.head->arrival));
    here.waits_for = kNone;
  }
  return out;
}

Trouble Mesh::pause(int rank, const char* what, Duration until) {
  Endpoint& here = endpoint(rank);
  here.place.what = what;
  here.place.from = here.place.to = simulation::kNoFiber;
  here.place.waker = simulation::kNoFiber;
  for (;;) {
    touch_interruption(rank);
    if (here.is_interrupted) return Trouble::kInterrupted;
    if (!wait(rank, until)) return Trouble::kTimeout;
  }
}

void Mesh::interrupt(int rank) {
  simulation::Scheduler::touch(endpoint(rank).interruption, simulation::Access::kWrite);
  endpoint(rank).is_interrupted = true;
  wake(rank);
}

void Mesh::lose_sent(int rank) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank) drop(link(rank, peer));
}

void Mesh::close(int rank) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank) continue;
    Link& out = link(rank, peer);
    Link& in = link(peer, rank);
    touch_state(out);
    if (out.state == State::kOpen) out.state = State::kClosed;
    if (in.state == State::kOpen) in.state = State::kClosed;
    drop(in);
    wake(peer);
  }
}

void Mesh::reset_pair(int a, int b) {
  for (Link* broken : {&link(a, b), &link(b, a)}) {
    broken->state = State::kReset;
    drop(*broken);
  }
  wake(a);
  wake(b);
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
