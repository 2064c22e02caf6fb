#include "reducer/autograd/node.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Destroys the nodes that nobody else owns one after the other, in a list linked through the nodes
// themselves. So a deep graph needs no stack, and no memory that might be refused. Each node is
// destroyed with its edges in place, and only then passes on the nodes that they own.
Node::~Node() {
  LOCKSTEP_CHECK_EQ(use_count(), std::uint32_t{0});
  Ref<Node> first;
  Ref<Node>& to_go = to_go_ == nullptr ? first : *to_go_;
  for (auto edge = edges_.rbegin(); edge != edges_.rend(); ++edge) {
    Ref<Node> node = std::move(edge->node);
    if (!node || node->use_count() != 1) continue;  // The last owner destroys it.
    node->next_to_go_ = std::move(to_go);
    to_go = std::move(node);
  }
  while (first) {
    Ref<Node> node = std::move(first);
    first = std::move(node->next_to_go_);
    node->to_go_ = &first;
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
