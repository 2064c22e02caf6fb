#include "properties/subject/hosted_pass.h"

#include <algorithm>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::uint32_t HostedPass::usable_outputs() {
  platform::MutexLock lock(mutex_);
  return static_cast<std::uint32_t>(outputs_.size());
}

void HostedPass::append_outputs(std::vector<Node*>& nodes) {
  platform::MutexLock lock(mutex_);
  nodes.insert(nodes.end(), outputs_.begin(), outputs_.end());
}

void HostedPass::add(HostedOutput* output) {
  platform::MutexLock lock(mutex_);
  outputs_.push_back(output);
}

void HostedPass::remove(HostedOutput* output) {
  platform::MutexLock lock(mutex_);
  std::erase(outputs_, output);
}

Status HostedPass::backward_begins(GraphTask& task, std::span<Node* const>) {
  if (owner_ != nullptr) return owner_->backward_begins(*this, task);
  return Status(Code::kSecondBackward, "the reducer of this pass was reset or destroyed");
}

Status HostedPass::backward_succeeded() {
  return owner_ != nullptr ? owner_->backward_succeeded(*this) : Status();
}

Status HostedPass::backward_failed(Status failure) {
  return owner_ != nullptr ? owner_->backward_failed(*this, std::move(failure)) : failure;
}

HostedOutput::HostedOutput(Ref<HostedPass> pass, std::vector<Edge> inputs, std::uint64_t sequence)
    : Node(sequence, static_cast<std::uint32_t>(inputs.size()), 0), pass_(std::move(pass)) {
  edges_ = std::move(inputs);
  observer_ = pass_.get();
  pass_->add(this);
}

HostedOutput::~HostedOutput() { pass_->remove(this); }

Status HostedOutput::apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
                           const BackwardContext&) {
  LOCKSTEP_CHECK_EQ(incoming.size(), outgoing.size());
  std::copy(incoming.begin(), incoming.end(), outgoing.begin());
  return {};
}

void HostedOutput::put_in_front(const Ref<HostedPass>& pass, bool shared, Engine& engine,
                                std::vector<Edge>& outputs) {
  if (outputs.empty()) return;
  if (shared) {
    const auto count = static_cast<std::uint32_t>(outputs.size());
    const Ref<Node> node(new HostedOutput(pass, std::move(outputs), engine.next_sequence()));
    outputs.clear();
    for (std::uint32_t slot = 0; slot < count; ++slot) outputs.push_back({node, slot});
    return;
  }
  for (Edge& output : outputs) {
    std::vector<Edge> input;
    input.push_back(std::move(output));
    output = {Ref<Node>(new HostedOutput(pass, std::move(input), engine.next_sequence())), 0};
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
