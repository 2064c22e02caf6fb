// FeatureCollector collects the names of the features that one case has. It is internal to
// generate/; features.h is the interface.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "reference/expectation.h"

namespace lockstep::properties {

class FeatureCollector {
 public:
  explicit FeatureCollector(const Case& value) : case_(value), program_(value.program) {
    parameters();
    steps();
    windows();
    graphs();
    faults();
    errors();
  }
  const std::set<std::string>& found() const { return found_; }

 private:
  void add_if(bool condition, const std::string& name) {
    if (condition) found_.insert(name);
  }
  bool owns(std::size_t i) const { return program_.parameters[i].shared_with == 0; }
  bool trains(std::size_t i) const {
    return is_original(program_.parameters[i]) && is_reduced(program_.parameters[i]);
  }
  const reference::RankPass& pass_of(const reference::Step& step, std::uint32_t rank) const {
    return step.variants[rank % step.variants.size()];
  }

  void parameters();
  void sizes(const reference::Parameter& parameter);
  void complex(const reference::Parameter& parameter);
  void steps();
  void use(const reference::Step& step);
  void dropped(const reference::Step& step);
  void windows();
  void graphs();
  void nodes(const reference::Step& step, const std::vector<reference::Node>& list, bool in_body);
  void faults();
  void rows();
  void errors();
  void static_graph();
  void views(const reference::Expectation& expected);
  void rebuilds(const reference::Expectation& expected);
  void hooks(const reference::Expectation& expected);
  void sparse(const reference::Expectation& expected);
  void uneven_rows(const reference::Step& step);
  void power_sgd(const reference::Expectation& expected, std::size_t reduced, bool is_rebuilt);

  const Case& case_;
  const reference::Program& program_;
  std::set<std::string> found_;
};

}  // namespace lockstep::properties
