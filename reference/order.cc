#include "reference/order.h"

#include <algorithm>
#include <cassert>

namespace lockstep::reference {
namespace {

std::uint64_t divided_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
std::uint64_t rounded_up(std::uint64_t a, std::uint64_t b) { return divided_up(a, b) * b; }

// What the chunks of the last loop are a multiple of, in bytes, for a bucket of so many bytes.
std::uint64_t grain_of(NcclRing ring, std::uint64_t bucket_bytes) {
  if (ring == NcclRing::kSince222) return 16;
  if (ring == NcclRing::kSince220) return 4096;
  // Each thread has 64 bytes of the bucket or more, unless there are only 64 threads.
  std::uint64_t threads = 512;
  while (threads > 64 && bucket_bytes < 64 * threads) threads /= 2;
  return 8 * threads;
}

// A chunk starts `step` ranks (modulo their count) after the rank of its own number, moves by so
// many ranks with each hop, and ends at that rank.
OrderRun around_ring(std::uint32_t ranks, std::uint32_t chunk, std::uint32_t step,
                     std::uint64_t end) {
  assert(chunk < ranks);
  OrderRun run;
  run.end = end;
  run.result = static_cast<std::uint8_t>(chunk);
  for (std::uint32_t hop = 1; hop < ranks; ++hop)
    run.additions[hop - 1] = {static_cast<std::uint8_t>((chunk + (hop + 1) * step) % ranks),
                              static_cast<std::uint8_t>((chunk + hop * step) % ranks)};
  assert(ranks == 1 || run.additions[ranks - 2].into == run.result);
  return run;
}

}  // namespace

std::vector<OrderRun> rank_order(std::uint32_t ranks, std::uint64_t elements) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  if (elements == 0) return {};
  OrderRun run;
  run.end = elements;
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    run.additions[rank - 1] = {0, static_cast<std::uint8_t>(rank)};
  }
  return {run};
}

// The bucket is sent in segments, the same number for every rank and at least two. That number
// follows from the largest segment allowed; then the segments are made as even as whole elements
// allow. The last chunks may be short or empty.
std::vector<OrderRun> gloo_ring(std::uint32_t ranks, std::uint64_t elements,
                                std::uint64_t element_bytes, std::uint64_t max_segment_bytes) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  assert(element_bytes > 0);
  const std::uint64_t bytes = elements * element_bytes;
  const std::uint64_t largest =
      element_bytes * std::max<std::uint64_t>(1, max_segment_bytes / element_bytes);
  const std::uint64_t segments =
      rounded_up(std::max(divided_up(bytes, largest), std::uint64_t{2} * ranks), ranks);
  const std::uint64_t segment_elements = divided_up(divided_up(bytes, segments), element_bytes);
  const std::uint64_t chunk_elements = segment_elements * (segments / ranks);

  std::vector<OrderRun> runs;
  for (std::uint32_t chunk = 0; chunk * chunk_elements < elements; ++chunk) {
    const std::uint64_t end = std::min(elements, (chunk + 1) * chunk_elements);
    runs.push_back(around_ring(ranks, chunk, ranks - 1, end));  // against the direction of ranks
  }
  assert(elements == 0 || runs.back().end == elements);
  return runs;
}

std::vector<OrderRun> gloo_bcube(std::uint32_t ranks, std::uint64_t elements) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  std::vector<OrderRun> runs;
  for (std::uint64_t begin = 0; begin < elements; begin = runs.back().end) {
    OrderRun run;
    std::size_t additions = 0;
    std::uint64_t part_begin = 0;  // of what the group holds in which `begin` lies
    std::uint64_t part_end = elements;
    std::uint32_t distance = 1;  // between neighbours in a group
    std::uint32_t owner = 0;     // the lower digits of the rank that ends up with `begin`
    for (std::uint32_t rest = ranks; rest > 1;) {
      const std::uint32_t size = rest % 2 == 0 ? 2 : rest;
      const std::uint64_t length = divided_up(part_end - part_begin, size);
      const auto digit = static_cast<std::uint32_t>((begin - part_begin) / length);
      // Every group that has `owner` as its lower digits; the higher ones are still all there.
      for (std::uint32_t base = owner; base < ranks; base += distance * size) {
        for (std::uint32_t other = 0; other < size; ++other) {
          if (other == digit) continue;
          run.additions[additions++] = {static_cast<std::uint8_t>(base + digit * distance),
                                        static_cast<std::uint8_t>(base + other * distance)};
        }
      }
      part_begin += digit * length;
      part_end = std::min(part_end, part_begin + length);
      owner += digit * distance;
      distance *= size;
      rest /= size;
      assert(part_begin <= begin);
      assert(begin < part_end);
    }
    assert(additions == ranks - 1);
    assert(owner < ranks);
    run.end = part_end;
    run.result = static_cast<std::uint8_t>(owner);
    runs.push_back(run);
  }
  return runs;
}

// Runs go through the bucket from the front: each is one chunk of a loop, or what there is of it.
std::vector<OrderRun> nccl_ring(std::uint32_t ranks, std::uint64_t elements,
                                std::uint64_t element_bytes, std::uint64_t chunk_bytes,
                                NcclRing ring) {
  assert(ranks >= 1 && ranks <= kMaxWorld);
  assert(element_bytes > 0 && 16 % element_bytes == 0);
  const std::uint64_t grain = grain_of(ring, elements * element_bytes);
  assert(chunk_bytes > 0 && chunk_bytes % grain == 0);
  const std::uint64_t full_chunk = chunk_bytes / element_bytes;
  const std::uint64_t whole_loops = elements / (full_chunk * ranks);
  std::vector<OrderRun> runs;
  for (std::uint64_t loop = 0; loop <= whole_loops; ++loop) {
    const std::uint64_t begin = loop * full_chunk * ranks;
    const std::uint64_t left = elements - begin;
    const std::uint64_t chunk = loop < whole_loops
                                    ? full_chunk
                                    : rounded_up(divided_up(left, ranks), grain / element_bytes);
    for (std::uint32_t c = 0; c < ranks && c * chunk < left; ++c) {
      const std::uint64_t end = std::min(elements, begin + (c + 1) * chunk);
      runs.push_back(around_ring(ranks, c, 1, end));
    }
  }
  assert(elements == 0 || runs.back().end == elements);
  return runs;
}

}  // namespace lockstep::reference
