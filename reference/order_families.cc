#include "reference/order_families.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <string>

namespace lockstep::reference {
namespace {

// Collects the additions of a run, which ends up in rank 0 unless `ends_in` says otherwise.
class Additions {
 public:
  explicit Additions(std::uint64_t end) { run_.end = end; }

  void add(std::uint32_t into, std::uint32_t from) {
    assert(count_ < run_.additions.size());
    assert(into != from);
    run_.additions[count_++] = {static_cast<std::uint8_t>(into), static_cast<std::uint8_t>(from)};
  }

  std::vector<OrderRun> done(std::uint32_t ranks, std::uint32_t ends_in = 0) {
    assert(count_ == ranks - 1);
    run_.result = static_cast<std::uint8_t>(ends_in);
    return run_.end == 0 ? std::vector<OrderRun>() : std::vector<OrderRun>{run_};
  }

 private:
  OrderRun run_;
  std::size_t count_ = 0;
};

std::uint32_t power_of_two_within(std::uint32_t ranks) {
  std::uint32_t power = 1;
  while (2 * power <= ranks) power *= 2;
  return power;
}

// Adds the ranks beyond the power of two in pairs. Returns the ranks that hold the sums.
std::vector<std::uint32_t> fold(std::uint32_t ranks, Additions& additions) {
  const std::uint32_t rest = ranks - power_of_two_within(ranks);
  std::vector<std::uint32_t> holders;
  for (std::uint32_t pair = 0; pair < rest; ++pair) {
    additions.add(2 * pair, 2 * pair + 1);
    holders.push_back(2 * pair);
  }
  for (std::uint32_t rank = 2 * rest; rank < ranks; ++rank) holders.push_back(rank);
  return holders;
}

// Adds the subtrees of the children of `rank` to it, depth first.
void add_subtrees(std::uint32_t rank, Additions& additions,
                  const std::function<std::vector<std::uint32_t>(std::uint32_t)>& children_of) {
  for (const std::uint32_t child : children_of(rank)) {
    add_subtrees(child, additions, children_of);
    additions.add(rank, child);
  }
}

std::uint64_t end_of_chunk(std::uint32_t chunk, std::uint32_t ranks, std::uint64_t elements,
                           const Ring& shape) {
  const std::uint64_t whole = elements / ranks;
  const std::uint64_t rest = elements % ranks;
  const std::uint64_t next = chunk + 1;
  const std::uint64_t rounded_up = whole + (rest > 0 ? 1 : 0);
  switch (shape.chunks) {
    case Chunks::kFirstLonger:
      return next * whole + std::min(next, rest);
    case Chunks::kLastLonger:
      return next == ranks ? elements : next * whole;
    case Chunks::kAboveGrain:
      return std::min(elements, next * (rounded_up / shape.grain + 1) * shape.grain);
    case Chunks::kRoundedUp:
      break;
  }
  return std::min(elements, next * rounded_up);
}

}  // namespace

std::vector<OrderRun> chain(std::uint32_t ranks, std::uint64_t elements) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  Additions additions(elements);
  for (std::uint32_t rank = ranks - 1; rank > 0; --rank) additions.add(rank - 1, rank);
  return additions.done(ranks);
}

std::vector<OrderRun> doubling(std::uint32_t ranks, std::uint64_t elements) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  Additions additions(elements);
  const std::vector<std::uint32_t> holders = fold(ranks, additions);
  for (std::size_t distance = 1; distance < holders.size(); distance *= 2)
    for (std::size_t at = 0; at < holders.size(); at += 2 * distance)
      additions.add(holders[at], holders[at + distance]);
  return additions.done(ranks);
}

std::vector<OrderRun> halving(std::uint32_t ranks, std::uint64_t elements) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  Additions additions(elements);
  const std::vector<std::uint32_t> holders = fold(ranks, additions);
  for (std::size_t distance = holders.size() / 2; distance > 0; distance /= 2)
    for (std::size_t at = 0; at < distance; ++at)
      additions.add(holders[at], holders[at + distance]);
  return additions.done(ranks);
}

std::vector<OrderRun> knomial(std::uint32_t ranks, std::uint64_t elements, std::uint32_t radix) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  assert(radix >= 2);
  Additions additions(elements);
  const auto children_of = [&](std::uint32_t rank) {
    std::vector<std::uint32_t> children;
    for (std::uint32_t step = 1; step < ranks && rank % (step * radix) == 0; step *= radix)
      for (std::uint32_t digit = 1; digit < radix && rank + digit * step < ranks; ++digit)
        children.push_back(rank + digit * step);
    return children;
  };
  add_subtrees(0, additions, children_of);
  return additions.done(ranks);
}

std::vector<OrderRun> kary(std::uint32_t ranks, std::uint64_t elements, std::uint32_t children) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  assert(children >= 1);
  Additions additions(elements);
  add_subtrees(0, additions, [&](std::uint32_t rank) {
    std::vector<std::uint32_t> below;
    for (std::uint32_t child = rank * children + 1;
         child <= rank * children + children && child < ranks; ++child)
      below.push_back(child);
    return below;
  });
  return additions.done(ranks);
}

std::vector<OrderRun> fanout(std::uint32_t ranks, std::uint64_t elements, std::uint32_t children) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  assert(children >= 1);
  Additions additions(elements);
  add_subtrees(0, additions, [&](std::uint32_t rank) {
    std::uint32_t level = 1;  // ranks on the level of `rank`
    for (std::uint32_t before = 0; rank >= before + level; level *= children) before += level;
    std::vector<std::uint32_t> below;
    for (std::uint32_t child = 1; child <= children && rank + child * level < ranks; ++child)
      below.push_back(rank + child * level);
    return below;
  });
  return additions.done(ranks);
}

std::vector<OrderRun> ring(std::uint32_t ranks, std::uint64_t elements, Ring shape) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  assert(shape.start < ranks);
  assert(shape.grain > 0);
  const std::uint32_t step = shape.direction == Direction::kUp ? 1 : ranks - 1;
  std::vector<OrderRun> runs;
  std::uint64_t begin = 0;
  for (std::uint32_t chunk = 0; chunk < ranks; ++chunk) {
    const std::uint64_t end = end_of_chunk(chunk, ranks, elements, shape);
    if (end == begin) continue;
    Additions additions(end);
    std::uint32_t at = (chunk + shape.start) % ranks;
    for (std::uint32_t hop = 1; hop < ranks; ++hop) {
      const std::uint32_t next = (at + step) % ranks;
      additions.add(next, at);
      at = next;
    }
    runs.push_back(additions.done(ranks, at).front());
    begin = end;
  }
  assert(begin == elements);
  return runs;
}

std::vector<OrderRun> in_pieces(std::uint64_t elements, std::uint64_t piece, std::uint64_t border,
                                const OrderRun& small, const OrderRun& large) {
  assert(piece > 0);
  std::vector<OrderRun> runs;
  const std::uint64_t first = elements % piece;
  if (first > 0) runs.push_back(first > border ? large : small);
  if (first > 0) runs.back().end = first;
  if (elements == first) return runs;
  const bool are_large = piece > border;
  if (first == 0 || are_large != (first > border)) runs.push_back(are_large ? large : small);
  runs.back().end = elements;
  return runs;
}

std::string text_of(const OrderRun& run, std::uint32_t ranks) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  std::vector<std::string> texts;
  std::vector<std::uint32_t> lowest;  // rank in each sum
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(std::to_string(rank));
    lowest.push_back(rank);
  }
  const auto in_brackets = [](const std::string& text) {
    return text.find('+') == std::string::npos ? text : "(" + text + ")";
  };
  for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
    const std::uint8_t into = run.additions[i].into;
    const std::uint8_t from = run.additions[i].from;
    const bool is_first = lowest[into] < lowest[from];
    texts[into] = in_brackets(texts[is_first ? into : from]) + "+" +
                  in_brackets(texts[is_first ? from : into]);
    lowest[into] = std::min(lowest[into], lowest[from]);
  }
  return texts[run.result];
}

bool is_same_order(const OrderRun& a, const OrderRun& b, std::uint32_t ranks) {
  return text_of(a, ranks) == text_of(b, ranks);
}

}  // namespace lockstep::reference
