#include "reducer/autograd/engine.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "reducer/autograd/contribution.h"
#include "reducer/autograd/foreign_graph.h"
#include "reducer/autograd/node_map.h"
#include "reducer/autograd/parameter.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::uint64_t mix(std::uint64_t x) {  // This is the finalizer of splitmix64.
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

struct NodeState {
  Node* node = nullptr;
  std::uint32_t dependencies = 0;
  std::uint32_t contributions = kEnd;  // The head of a list in Engine::Task.
};

}  // namespace

struct Engine::Ready {
  Task* task = nullptr;
  std::uint32_t index = 0;  // The index of the node in its task.
  std::uint32_t depth = 0;
  bool accumulator = false;
  std::uint64_t order = 0;

  bool operator<(const Ready& other) const {  // The greatest one runs first.
    if (depth != other.depth) return depth < other.depth;
    if (accumulator != other.accumulator) return other.accumulator;
    return order < other.order;
  }
};

struct Engine::Task final : GraphTask {
  using GraphTask::be_nested_in;
  void at_end(BackwardEnd* callback) override { ends.add(callback); }

  std::vector<NodeState> nodes;
  std::vector<Contribution> contributions;
  NodeMap numbers;
  std::vector<std::pair<BackwardObserver*, Node*>> observed;
  std::vector<Node*> observed_nodes;
  BackwardEnds ends;
  // Reused memory for nodes with many edges, so that running them does not allocate.
  std::vector<std::vector<Tensor>> spare_gradients;
  std::vector<std::vector<Contribution>> spare_contributions;
  // The ready nodes of worker 0, which the thread that called backward runs.
  std::vector<Engine::Ready> ready;
  platform::CondVar progress{"backward.progress"};
  std::uint32_t depth = 0;
  std::uint32_t outstanding = 0;  // The number of nodes that are ready or running.
  int driver = 0;                 // The worker whose thread drives this task.
  bool retain_graph = false;
  Status failure;

  void clear() {
    nodes.clear();
    contributions.clear();
    numbers.clear();
    observed.clear();
    observed_nodes.clear();
    ends.clear();
    ready.clear();
    outstanding = 0;
    failure = Status();
  }
};

struct Engine::Impl {
  struct Worker {
    explicit Worker() : wake("engine.worker") {}
    std::vector<Ready> ready;
    platform::CondVar wake;
    platform::Thread thread;
    std::optional<platform::ThreadId> id;  // Of `thread`, once it runs.
    std::uint32_t depth = 0;               // Of the task whose node the thread runs.
  };
  std::vector<std::unique_ptr<Worker>> workers;  // Worker 0 has no thread.
  std::vector<std::unique_ptr<Task>> idle_tasks;
  bool stopping = false;
};

Engine::Engine(int workers, std::uint64_t tie_seed)
    : tie_seed_(tie_seed), impl_(std::make_unique<Impl>()) {
  LOCKSTEP_CHECK_GE(workers, 0);
  for (int k = 0; k <= workers; ++k) impl_->workers.push_back(std::make_unique<Impl::Worker>());
  for (int k = 1; k <= workers; ++k) {
    impl_->workers[static_cast<std::size_t>(k)]->thread =
        platform::Thread("engine." + std::to_string(k), [this, k] { work(k); });
  }
}

Engine::~Engine() {
  {
    platform::MutexLock lock(mutex_);
    impl_->stopping = true;
    for (const auto& worker : impl_->workers) {
      LOCKSTEP_CHECK(worker->ready.empty());  // No backward is running.
      worker->wake.notify_all();
    }
  }
  for (const auto& worker : impl_->workers)
    if (worker->thread.joinable()) worker->thread.join();
}

namespace {

// A refused allocation ends a backward as any other failure does.
template <class Call>
Status guarded(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

// Vectors that are kept only for their memory are not worth an error.
template <class T>
void give_back(std::vector<T>& spare, std::type_identity_t<T>&& one) {
  try {
    spare.push_back(std::move(one));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Status Engine::backward(std::span<const Edge> roots, std::span<const Tensor> gradients,
                        bool retain_graph) {
  return guarded([&] { return run(nullptr, roots, gradients, retain_graph); });
}

Status Engine::backward_nested(const BackwardContext& outer, std::span<const Edge> roots,
                               std::span<const Tensor> gradients, bool retain_graph) {
  return guarded([&] { return run(&outer, roots, gradients, retain_graph); });
}

Status Engine::run(const BackwardContext* outer, std::span<const Edge> roots,
                   std::span<const Tensor> gradients, bool retain_graph) {
  LOCKSTEP_CHECK_EQ(roots.size(), gradients.size());
  std::unique_ptr<Task> task;
  int driver = outer ? outer->worker : 0;
  std::uint32_t depth = outer ? static_cast<Task&>(outer->task).depth + 1 : 0;
  {
    platform::MutexLock lock(mutex_);
    if (!outer) driver = worker_of_this_thread(depth);
    if (!impl_->idle_tasks.empty()) {
      task = std::move(impl_->idle_tasks.back());
      impl_->idle_tasks.pop_back();
    }
  }
  if (!task) task = std::make_unique<Task>();
  Task& state = *task;
  state.be_nested_in(outer ? &outer->task : nullptr);
  state.depth = depth;
  state.driver = driver;
  state.retain_graph = retain_graph;

  Status status = guarded([&] { return discover(*task, roots, gradients); });
  if (status.ok()) status = guarded([&] { return announce(*task); });
  if (status.ok())
    status = guarded([&]() -> Status {
      platform::MutexLock lock(mutex_);
      // How long the queues become depends on timing; how long they can become does not.
      state.ready.reserve(state.nodes.size());
      for (const auto& shared : impl_->workers)
        shared->ready.reserve(shared->ready.size() + state.nodes.size());
      for (std::uint32_t i = 0; i < state.nodes.size(); ++i)
        if (state.nodes[i].dependencies == 0) push_ready(*task, i, state.driver);
      drive(*task, state.driver);
      return std::move(state.failure);
    });
  status = finish(*task, std::move(status));

  state.clear();
  platform::MutexLock lock(mutex_);
  give_back(impl_->idle_tasks, std::move(task));
  return status;
}

// A thread of the engine calls backward() where user code runs in a node without its context, as a
// communication hook does. Nobody else runs the nodes of that thread, so it drives the backward,
// and the backward goes before the one that it interrupts. 0 stands for every other thread.
int Engine::worker_of_this_thread(std::uint32_t& depth) const {
  for (std::size_t k = 1; k < impl_->workers.size(); ++k) {
    const Impl::Worker& worker = *impl_->workers[k];
    if (worker.id != platform::this_thread()) continue;
    depth = worker.depth + 1;
    return static_cast<int>(k);
  }
  return 0;
}

// Numbers the reachable nodes, counts how many senders each one has, and hands the roots their
// gradients.
Status Engine::discover(Task& task, std::span<const Edge> roots,
                        std::span<const Tensor> gradients) {
  const auto visit = [&](Node* node) {
    const auto number = static_cast<std::uint32_t>(task.nodes.size());
    const auto [index, known] = task.numbers.insert(node, number);
    if (!known) {
      LOCKSTEP_CHECK_LT(static_cast<std::size_t>(node->worker()), impl_->workers.size());
      task.nodes.push_back({node, 0, kEnd});
      if (node->observer()) task.observed.push_back({node->observer(), node});
    }
    return index;
  };
  for (std::size_t r = 0; r < roots.size(); ++r) {
    if (!roots[r].node) continue;
    NodeState& root = task.nodes[visit(roots[r].node.get())];
    if (!gradients[r].defined()) continue;
    // A root's own gradient counts as sent by a node created after all others, in the order of the
    // roots.
    task.contributions.push_back({gradients[r], ~std::uint64_t{0}, static_cast<std::uint32_t>(r),
                                  roots[r].slot, root.contributions});
    root.contributions = static_cast<std::uint32_t>(task.contributions.size() - 1);
  }
  std::size_t edges = 0;
  for (std::size_t i = 0; i < task.nodes.size(); ++i) {
    Node* node = task.nodes[i].node;
    if (node->freed_.load(std::memory_order_acquire))
      return Status(Code::kGraphFreed, "this graph was used by a backward that did not retain it");
    edges += node->edges().size();
    for (const Edge& edge : node->edges())
      if (edge.node) ++task.nodes[visit(edge.node.get())].dependencies;
  }
  // Each edge has at most one contribution.
  task.contributions.reserve(task.contributions.size() + edges);
  return {};
}

Status Engine::announce(Task& task) {
  LOCKSTEP_CHECK(task.ends.empty());  // None is left of another backward.
  auto& observed = task.observed;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    BackwardObserver* observer = observed[i].first;
    const auto same = [observer](const auto& pair) { return pair.first == observer; };
    const auto here = observed.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(observed.begin(), here, same)) continue;
    task.observed_nodes.clear();
    for (const auto& [owner, node] : observed)
      if (owner == observer) task.observed_nodes.push_back(node);
    LOCKSTEP_RETURN_IF_ERROR(observer->backward_begins(task, task.observed_nodes));
  }
  return {};
}

// Runs everything that this thread may run until every node of `task` is done. It holds the
// mutex except while a node runs.
void Engine::drive(Task& task, int worker) {
  platform::CondVar& wake =
      worker == 0 ? task.progress : impl_->workers[static_cast<std::size_t>(worker)]->wake;
  while (task.outstanding != 0) {
    Ready ready;
    bool found = false;
    wake.wait(mutex_, platform::Deadline::never(), [&]() LOCKSTEP_REQUIRES(mutex_) {
      found = task.outstanding != 0 && next_ready(&task, worker, ready);
      return found || task.outstanding == 0;
    });
    if (found) execute(ready, worker);
  }
  LOCKSTEP_CHECK(task.ready.empty());
}

Status Engine::finish(Task& task, Status status) {
  LOCKSTEP_CHECK_EQ(task.outstanding, 0u);  // No node of it runs any more.
  return task.ends.run(std::move(status));
}

void Engine::work(int worker) {
  LOCKSTEP_CHECK_GE(worker, 1);  // Worker 0 has no thread.
  platform::MutexLock lock(mutex_);
  Impl::Worker& self = *impl_->workers[static_cast<std::size_t>(worker)];
  self.id = platform::this_thread();
  while (true) {
    Ready ready;
    bool found = false;
    self.wake.wait(mutex_, platform::Deadline::never(), [&]() LOCKSTEP_REQUIRES(mutex_) {
      found = next_ready(nullptr, worker, ready);
      return found || impl_->stopping;
    });
    if (!found) return;
    execute(ready, worker);
  }
}

// Takes the most urgent ready node of the task's own queue and of the worker's.
bool Engine::next_ready(Task* task, int worker, Ready& ready) {
  std::vector<Ready>* best = nullptr;
  if (task && !task->ready.empty()) best = &task->ready;
  if (worker != 0) {
    auto& shared = impl_->workers[static_cast<std::size_t>(worker)]->ready;
    if (!shared.empty() && (!best || best->front() < shared.front())) best = &shared;
  }
  if (!best) return false;
  std::pop_heap(best->begin(), best->end());
  ready = best->back();
  best->pop_back();
  LOCKSTEP_CHECK(ready.task->outstanding > 0);
  return true;
}

namespace {

// Sums the contributions that arrived at a node, slot by slot, in the declared order.
Status fold(std::vector<Contribution>& arrived, std::span<Tensor> incoming) {
  std::sort(arrived.begin(), arrived.end(), sent_before);
  std::uint32_t slot = kEnd;
  bool owned = false;
  for (Contribution& contribution : arrived) {
    LOCKSTEP_CHECK_LT(contribution.slot, incoming.size());
    Tensor& sum = incoming[contribution.slot];
    if (contribution.slot != slot) {
      slot = contribution.slot;
      owned = false;
      sum = std::move(contribution.gradient);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(add_to(sum, owned, contribution.gradient));
    }
  }
  return {};
}

Status apply_guarded(Node& node, std::span<const Tensor> incoming, std::span<Tensor> outgoing,
                     const BackwardContext& context) {
  LOCKSTEP_CHECK_EQ(incoming.size(), std::size_t{node.outputs()});
  LOCKSTEP_CHECK_EQ(outgoing.size(), node.edges().size());
  std::string what;
  Failure failure;
  failure.code = Code::kUserFailure;
  try {
    return node.apply(incoming, outgoing, context);
  } catch (const std::bad_alloc& error) {
    failure.code = Code::kOutOfMemory;
    what = error.what();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "an exception that is not a std::exception";
  }
  failure.definite = true;
  failure.detail = "a node of the backward graph threw: " + what;
  if (node.kind() == Node::Kind::kParameter)
    failure.parameters.push_back(static_cast<Parameter&>(node).name());
  return failure;
}

// Vectors that are not in use, kept for their memory.
template <class T>
using Spare = std::vector<std::vector<T>>;

// One of these vectors, with room for `count`; the destructor returns it. The engine's mutex guards
// both.
template <class T>
class Borrowed {
 public:
  Borrowed(std::size_t count, Spare<T>& spare) : spare_(spare) {
    if (count == 0) return;
    const auto fits = [count](const auto& one) { return one.capacity() >= count; };
    auto found = std::find_if(spare_.begin(), spare_.end(), fits);
    if (found == spare_.end() && !spare_.empty()) found = spare_.begin();
    if (found != spare_.end()) {
      items = std::move(*found);
      spare_.erase(found);
      LOCKSTEP_CHECK(items.empty());
    }
    items.reserve(count);
  }
  ~Borrowed() {
    if (items.capacity() == 0) return;
    items.clear();
    give_back(spare_, std::move(items));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  std::vector<T> items;

 private:
  Spare<T>& spare_;
};

// The gradients of one node, stored inline if there are few, as usual.
class Gradients {
 public:
  Gradients(std::size_t count, Spare<Tensor>& spare) : many_(count > kInline ? count : 0, spare) {
    if (count > kInline) many_.items.resize(count);
    view_ = count > kInline ? std::span<Tensor>(many_.items) : std::span(few_.data(), count);
  }
  std::span<Tensor> view() const { return view_; }

 private:
  static constexpr std::size_t kInline = 4;
  std::array<Tensor, kInline> few_;
  Borrowed<Tensor> many_;
  std::span<Tensor> view_;
};

}  // namespace

// An allocation may be refused only while this thread holds the mutex; the code that runs
// without it is guarded.
void Engine::execute(const Ready& ready, int worker) {
  std::uint32_t& depth = impl_->workers[static_cast<std::size_t>(worker)]->depth;
  const std::uint32_t depth_before = std::exchange(depth, ready.depth);
  try {
    run_node(ready, worker);
  } catch (const std::bad_alloc&) {
    Task& task = *ready.task;
    if (task.failure.ok()) task.failure = out_of_memory();
    note_done(*ready.task, worker);
  }
  depth = depth_before;
}

void Engine::run_node(const Ready& ready, int worker) {
  Task& task = *ready.task;
  if (!task.failure.ok()) {
    note_done(task, worker);
    return;
  }
  Node& node = *task.nodes[ready.index].node;
  std::uint32_t contribution = task.nodes[ready.index].contributions;
  std::size_t count = 0;
  for (std::uint32_t c = contribution; c != kEnd; c = task.contributions[c].next) ++count;
  Gradients incoming(node.outputs(), task.spare_gradients);
  Gradients outgoing(node.edges().size(), task.spare_gradients);
  Borrowed<Contribution> arrived(count > 1 ? count : 0, task.spare_contributions);
  if (count == 1) {
    Contribution& only = task.contributions[contribution];
    LOCKSTEP_CHECK_LT(only.slot, incoming.view().size());
    incoming.view()[only.slot] = std::move(only.gradient);
    contribution = kEnd;
  }
  for (; contribution != kEnd; contribution = task.contributions[contribution].next)
    arrived.items.push_back(std::move(task.contributions[contribution]));

  Status status;
  {
    const platform::MutexUnlock unlocked(mutex_);
    status = guarded([&] {
      LOCKSTEP_RETURN_IF_ERROR(fold(arrived.items, incoming.view()));
      return apply_guarded(node, incoming.view(), outgoing.view(), {*this, task, worker});
    });
    if (!task.retain_graph && node.kind() != Node::Kind::kParameter) {
      node.freed_.store(true, std::memory_order_release);
      node.release();
    }
  }

  if (!status.ok() && task.failure.ok()) task.failure = std::move(status);
  if (task.failure.ok()) deliver(task, node, outgoing.view(), worker);
  note_done(task, worker);
}

void Engine::deliver(Task& task, Node& sender, std::span<Tensor> outgoing, int worker) {
  for (std::uint32_t e = 0; e < sender.edges().size(); ++e) {
    const Edge& edge = sender.edges()[e];
    if (!edge.node) continue;
    const std::uint32_t index = task.numbers.at(edge.node.get());
    NodeState& receiver = task.nodes[index];
    if (outgoing[e].defined()) {
      task.contributions.push_back(
          {std::move(outgoing[e]), sender.sequence(), e, edge.slot, receiver.contributions});
      receiver.contributions = static_cast<std::uint32_t>(task.contributions.size() - 1);
    }
    LOCKSTEP_CHECK(receiver.dependencies > 0);
    if (--receiver.dependencies == 0) push_ready(task, index, worker);
  }
}

// `by` is the worker whose thread pushes: a thread does not wake itself.
void Engine::push_ready(Task& task, std::uint32_t index, int by) {
  LOCKSTEP_CHECK_EQ(task.nodes[index].dependencies, 0u);
  const Node& node = *task.nodes[index].node;
  Ready ready;
  ready.task = &task;
  ready.index = index;
  ready.depth = task.depth;
  ready.accumulator = node.kind() == Node::Kind::kParameter;
  ready.order =
      ready.accumulator && tie_seed_ != 0 ? mix(node.sequence() ^ tie_seed_) : node.sequence();
  const auto worker = static_cast<std::size_t>(node.worker());
  auto& queue = worker == 0 ? task.ready : impl_->workers[worker]->ready;
  queue.push_back(ready);
  std::push_heap(queue.begin(), queue.end());
  ++task.outstanding;  // This comes after the push, because an allocation may be refused.
  if (worker != 0) {
    if (node.worker() != by) impl_->workers[worker]->wake.notify_all();
  } else {
    wake_driver(task, by);
  }
}

void Engine::note_done(Task& task, int by) {
  LOCKSTEP_CHECK(task.outstanding > 0);
  if (--task.outstanding == 0) wake_driver(task, by);
}

void Engine::wake_driver(Task& task, int by) {
  LOCKSTEP_CHECK_LT(static_cast<std::size_t>(task.driver), impl_->workers.size());
  if (task.driver == by) return;
  if (task.driver != 0)
    impl_->workers[static_cast<std::size_t>(task.driver)]->wake.notify_all();
  else
    task.progress.notify_all();
}

ParameterSearch::ParameterSearch() : visited_(std::make_unique<NodeMap>()) {}
ParameterSearch::~ParameterSearch() = default;

std::span<Node* const> ParameterSearch::reachable_from(std::span<Node* const> roots) {
  visited_->clear();
  pending_.clear();
  found_.clear();
  met_nested_backward_ = false;
  const auto visit = [this](Node* node) {
    if (visited_->insert(node, 0).second) return;
    (node->kind() == Node::Kind::kParameter ? found_ : pending_).push_back(node);
  };
  for (Node* root : roots) visit(root);
  while (!pending_.empty()) {
    Node* node = pending_.back();
    pending_.pop_back();
    met_nested_backward_ = met_nested_backward_ || node->runs_backward();
    if (node->kind() == Node::Kind::kForeignGraph) {
      behind_.clear();
      if (static_cast<ForeignGraph*>(node)->find_parameters(behind_)) met_nested_backward_ = true;
      for (Node* parameter : behind_) visit(parameter);
    }
    for (const Edge& edge : node->edges())
      if (edge.node) visit(edge.node.get());
  }
  return found_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
