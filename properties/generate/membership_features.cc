#include "properties/generate/membership_features.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "properties/generate/fault_plan.h"
#include "reference/model.h"
#include "reference/state.h"

namespace lockstep::properties {
namespace {

using reference::Parameter;
using reference::PassKind;
using reference::Program;
using reference::ZeroGrad;

class MembershipFeatures {
 public:
  MembershipFeatures(const Case& value, const reference::Expectation& expected,
                     std::set<std::string>& found)
      : case_(value), program_(value.program), expected_(expected), found_(found) {}

  void find() {
    state();
    inputs();
    verified();
    replicas();
    groups();
    reducers();
    renewal();
  }

 private:
  void add_if(bool condition, const std::string& name) {
    if (condition) found_.insert(name);
  }
  void state();
  void inputs();
  void verified();
  void replicas();
  void groups();
  void reducers();
  void renewal();

  const Case& case_;
  const Program& program_;
  const reference::Expectation& expected_;
  std::set<std::string>& found_;
};

// Adds the features of values and buffers (S3).
void MembershipFeatures::state() {
  const auto& parameters = program_.parameters;
  const bool is_ignored = std::any_of(parameters.begin(), parameters.end(), [](const auto& each) {
    return each.ignored && !each.frozen;
  });
  if (is_ignored) {
    const std::string what = "ignored parameter";
    add_if(true, what);
    add_if(bucket_count(program_) > 0, what + ", and another that is reduced");
  }
  if (program_.buffers.empty()) return;
  add_if(program_.options.keep_buffers, "buffers broadcast at construction alone");
  const std::size_t chunks =
      reference::buffer_chunks(program_.options, reference::state_tensors(program_)).size();
  std::size_t sent = 0;
  std::size_t on_first = 0;
  for (const reference::Buffer& buffer : program_.buffers) {
    sent += !buffer.ignored && reference::element_count(buffer.sizes) > 0 ? 1 : 0;
    on_first += buffer.device == 0 ? 1 : 0;
  }
  add_if(chunks > 1, "buffers in several chunks");
  add_if(sent > chunks, "several buffers in one chunk");
  add_if(on_first > 0 && on_first < program_.buffers.size(), "buffers on two devices");
  for (std::size_t s = 0; s < program_.steps.size() && chunks > 0; ++s) {
    const bool broadcasts =
        std::any_of(expected_.steps[s].collectives.begin(), expected_.steps[s].collectives.end(),
                    [](const auto& each) {
                      return each.op == reference::ExpectedCollective::Op::kBroadcastBuffers;
                    });
    const PassKind kind = program_.steps[s].kind;
    add_if(broadcasts && kind == PassKind::kNoSync, "buffers broadcast before a local pass");
    add_if(!broadcasts && !program_.options.keep_buffers && kind == PassKind::kSynced,
           "buffers not broadcast inside of a window");
  }
}

// Adds the features of replicas (P15).
void MembershipFeatures::replicas() {
  std::vector<std::size_t> copies(program_.parameters.size());
  bool on_other_device = false;
  for (std::uint32_t i = 0; i < program_.parameters.size(); ++i) {
    const Parameter& copy = program_.parameters[i];
    const std::uint32_t owner = reference::owner_of(program_, i);
    add_if(owner != i && program_.parameters[owner].copy_of > 0, "replicas, a shared parameter");
    add_if(copy.copy_of > 0 && copy.column_major && copy.sizes.size() > 1,
           "replicas, a column-major parameter");
    if (copy.copy_of == 0 || !is_reduced(copy)) continue;
    ++copies[i - copy.copy_of];
    on_other_device =
        on_other_device || copy.device != program_.parameters[i - copy.copy_of].device;
  }
  const std::size_t most = *std::max_element(copies.begin(), copies.end());
  if (most == 0) return;
  const std::string way = "replicas";
  add_if(true, way);
  add_if(on_other_device, way + " on two devices");
  add_if(most == 2, "three " + way);
  bool is_partial = false;
  for (std::size_t i = 0; i < copies.size(); ++i)
    is_partial = is_partial || (reference::is_original(program_.parameters[i]) &&
                                reference::is_reduced(program_.parameters[i]) && copies[i] == 0);
  add_if(is_partial, way + ", and a parameter that one has alone");
  add_if(std::any_of(program_.buffers.begin(), program_.buffers.end(),
                     [](const auto& buffer) { return buffer.copy_of > 0; }),
         way + ", buffers of each");
}

// Adds the features of several reducers (F7).
void MembershipFeatures::reducers() {
  if (reference::reducer_count(program_) == 1) return;
  const std::string way = "two reducers";
  const bool is_after = program_.options.launch == reference::Launch::kAfterBackward;
  add_if(true, way);
  if (program_.options.group_each) return;
  add_if(is_after, way + " on one group, after backward");
  add_if(!is_after, way + " on one group, overlapped");
}

// Adds the features of a reducer that follows another one.
void MembershipFeatures::renewal() {
  if (program_.recreate_before_step == 0) return;
  add_if(program_.steps[program_.recreate_before_step].zero_grad == ZeroGrad::kKeep,
         "a reducer after another, gradients kept");
}

// Adds the features of groups whose ranks are not those of the world.
void MembershipFeatures::groups() {
  if (!program_.options.two_groups) return;
  add_if(program_.world > 3, "two groups of ranks, of 2 ranks or more each");
  add_if(program_.world % 2 == 1, "two groups of ranks, of different sizes");
}

// Adds the features of verified collectives (F3).
void MembershipFeatures::verified() {
  if (!program_.options.verify) return;
  const auto& plan = case_.faults.faults;
  const auto changed = std::count_if(plan.begin(), plan.end(), [](const faults::Fault& fault) {
    return faults::is_payload(fault.kind);
  });
  const std::string change = "verified, a payload is changed";
  add_if(changed > 0, change);
  add_if(changed == 1 && plan.size() == 1, change + ", and nothing else goes wrong");
  add_if(changed > 1, change + " twice");
  // The collectives of buffers are the first of a step.
  add_if(found_.count("buffers") > 0 && !program_.options.keep_buffers &&
             std::any_of(plan.begin(), plan.end(),
                         [](const faults::Fault& fault) {
                           return faults::is_payload(fault.kind) && fault.site < 2;
                         }),
         "verified, buffers that are changed on their way");
}

// Adds the features of uneven inputs (S2).
void MembershipFeatures::inputs() {
  const auto steps = static_cast<std::uint32_t>(program_.steps.size());
  std::vector<std::uint32_t> inputs;
  for (std::uint32_t rank = 0; rank < program_.world; ++rank) {
    std::uint32_t& has = inputs.emplace_back(0);
    for (std::uint32_t s = 0; s < steps; ++s)
      has += reference::has_input(program_, rank, s) ? 1 : 0;
  }
  const auto [least, most] = std::minmax_element(inputs.begin(), inputs.end());
  if (*least == *most) return;
  const std::string way = "uneven inputs";
  add_if(true, way);
  const bool by_all = program_.options.join == reference::Join::kByAll;
  add_if(by_all, way + ", the mean over all ranks");
  add_if(!by_all, way + ", the mean over those that train");
  add_if(*least == 0, "a rank without any input");
  add_if(inputs[0] == *least, way + ", rank 0 out first");
  add_if(program_.options.early_termination, way + ", early termination");
  add_if(program_.rejoin_step > 0, "a second join");
  add_if(std::any_of(case_.faults.faults.begin(), case_.faults.faults.end(),
                     [&](const faults::Fault& fault) {
                       return !faults::is_benign(fault.kind) &&
                              !reference::has_input(program_, fault.rank, fault.step);
                     }),
         way + ", a fault of a rank that has none");
  for (std::uint32_t s = 0; s < steps; ++s) {
    const auto& collectives = expected_.steps[s].collectives;
    add_if(!reference::has_input(program_, 0, s) &&
               std::any_of(collectives.begin(), collectives.end(),
                           [](const auto& each) {
                             return each.op == reference::ExpectedCollective::Op::kBroadcastBuffers;
                           }),
           way + ", buffers broadcast when rank 0 is out");
  }
}

}  // namespace

void find_membership_features(const Case& value, const reference::Expectation& expected,
                              std::set<std::string>& found) {
  MembershipFeatures(value, expected, found).find();
}

}  // namespace lockstep::properties
