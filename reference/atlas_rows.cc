#include "reference/atlas_rows.h"

#include "reference/order_families.h"

// The largest size of a row is the largest that was measured, and so are its ranks: nobody knows
// what the library does beyond. ORDERS.md has the commands.
namespace lockstep::reference {
namespace {

using enum Collective;
using enum SizeUnit;

using Runs = std::vector<OrderRun>;

Runs in_rank_order(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return rank_order(ranks, elements);
}
Runs as_chain(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return chain(ranks, elements);
}
Runs by_doubling(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return doubling(ranks, elements);
}
Runs by_halving(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return halving(ranks, elements);
}
template <std::uint32_t kRadix>
Runs as_knomial(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return knomial(ranks, elements, kRadix);
}
template <std::uint32_t kChildren>
Runs as_tree(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return kary(ranks, elements, kChildren);
}
template <std::uint32_t kChildren>
Runs as_dealt_tree(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return fanout(ranks, elements, kChildren);
}
template <Direction kDirection, std::uint32_t kStart, Chunks kChunks>
Runs around(std::uint32_t ranks, std::uint64_t elements, std::uint64_t /*bytes*/) {
  return ring(ranks, elements, {kDirection, kStart, kChunks});
}
constexpr auto kUpFromOwn = around<Direction::kUp, 0, Chunks::kFirstLonger>;
constexpr auto kUpFromNext = around<Direction::kUp, 1, Chunks::kFirstLonger>;
constexpr auto kDownFromOwn = around<Direction::kDown, 0, Chunks::kFirstLonger>;

Runs gloos_ring(std::uint32_t ranks, std::uint64_t elements, std::uint64_t bytes) {
  return gloo_ring(ranks, elements, bytes, std::uint64_t{1} << 20U);
}
Runs tensorflows_ring(std::uint32_t ranks, std::uint64_t elements, std::uint64_t bytes) {
  return ring(ranks, elements, {Direction::kUp, 0, Chunks::kAboveGrain, 64 / bytes});
}

// MPICH's shared memory: pieces of 8 KiB, those above 2 KiB in a tree of two children each.
Runs mpichs_pieces(std::uint32_t ranks, std::uint64_t elements, std::uint64_t bytes) {
  return in_pieces(elements, 8192 / bytes, 2048 / bytes, kary(ranks, 1, 4).front(),
                   kary(ranks, 1, 2).front());
}

void add_open_mpi(std::vector<AtlasRow>& rows) {
  const auto add = [&rows](const char* first_version, Collective collective, std::uint32_t ranks,
                           SizeUnit unit, std::uint64_t first, std::uint64_t last,
                           const char* algorithm, auto order) {
    rows.push_back({"openmpi", first_version, "5.0.11", collective, ranks, ranks, unit, first, last,
                    1, kEveryCall, algorithm, order});
  };
  constexpr std::uint64_t kMost = 524288;  // bytes
  const char* both = "4.1.8";
  const char* one = "5.0.11";
  add(both, kAllReduce, 3, kBytes, 1, 4095, "doubling", by_doubling);
  add(both, kAllReduce, 3, kBytes, 4096, 8191, "ring up from c", kUpFromOwn);
  add(both, kAllReduce, 3, kBytes, 8192, 16383, "doubling", by_doubling);
  add(both, kAllReduce, 3, kBytes, 16384, 262143, "ring up from c", kUpFromOwn);
  add(both, kAllReduce, 3, kBytes, 262144, kMost, "doubling", by_doubling);
  add(both, kAllReduce, 4, kBytes, 1, kMost, "doubling", by_doubling);
  add(both, kAllReduce, 5, kBytes, 1, kMost, "doubling", by_doubling);
  add(one, kNonBlockingAllReduce, 3, kBytes, 1, kMost, "doubling", by_doubling);
  add(one, kNonBlockingAllReduce, 4, kBytes, 1, kMost, "doubling", by_doubling);
  add(one, kNonBlockingAllReduce, 5, kBytes, 1, 65535, "binomial tree", as_knomial<2>);
  add(one, kNonBlockingAllReduce, 5, kBytes, 65536, kMost, "doubling", by_doubling);
  add(both, kReduce, 3, kBytes, 1, 7, "chain", as_chain);
  add(both, kReduce, 3, kBytes, 8, 15, "binary tree, dealt out", as_dealt_tree<2>);
  add(both, kReduce, 3, kBytes, 16, kMost, "chain", as_chain);
  for (const std::uint32_t ranks : {4U, 5U}) {
    add(both, kReduce, ranks, kBytes, 1, 4095, "binary tree, dealt out", as_dealt_tree<2>);
    add(both, kReduce, ranks, kBytes, 4096, 65535, "chain", as_chain);
    add(both, kReduce, ranks, kBytes, 65536, 262143, "binomial tree", as_knomial<2>);
    add(both, kReduce, ranks, kBytes, 262144, 524287, "chain", as_chain);
    add(both, kReduce, ranks, kBytes, 524288, kMost, "binomial tree", as_knomial<2>);
    add(both, kReduceScatter, ranks, kBytes, 1, 262143, "halving", by_halving);
    add(both, kReduceScatter, ranks, kBytes, 262144, kMost, "ring up from c+1", kUpFromNext);
    add(one, kReduceScatterBlock, ranks, kRankBytes, 1, 7, "halving", by_halving);
    add(one, kReduceScatterBlock, ranks, kRankBytes, 256, 8191, "halving", by_halving);
    add(one, kReduceScatterBlock, ranks, kRankBytes, 8192, 16383, "doubling", by_doubling);
    add(one, kReduceScatterBlock, ranks, kRankBytes, 16384, kMost / ranks, "halving", by_halving);
  }
  add(one, kReduceScatterBlock, 4, kRankBytes, 8, 255, "doubling", by_doubling);
  add(one, kReduceScatterBlock, 5, kRankBytes, 8, 31, "binomial tree", as_knomial<2>);
  add(one, kReduceScatterBlock, 5, kRankBytes, 32, 255, "doubling", by_doubling);
  add(both, kReduceScatter, 3, kBytes, 1, 65535, "ring up from c+1", kUpFromNext);
  add(both, kReduceScatter, 3, kBytes, 65536, 131071, "halving", by_halving);
  add(both, kReduceScatter, 3, kBytes, 131072, kMost, "ring up from c+1", kUpFromNext);
  add(one, kReduceScatterBlock, 3, kRankBytes, 1, 131071, "halving", by_halving);
  add(one, kReduceScatterBlock, 3, kRankBytes, 131072, kMost / 3, "chain", as_chain);
}

// The rings that are all that a library has.
void add_rings(std::vector<AtlasRow>& rows) {
  const auto add = [&rows](const char* library, const char* first_version, const char* last_version,
                           Collective collective, std::uint32_t first_ranks,
                           std::uint32_t last_ranks, std::uint64_t first, std::uint64_t last,
                           const char* algorithm, auto order) {
    rows.push_back({library, first_version, last_version, collective, first_ranks, last_ranks,
                    kElements, first, last, 1, kEveryCall, algorithm, order});
  };
  add("torch", "2.15.0", "2.15.0", kAllReduce, 3, 4, 1, 4096, "Gloo's ring", gloos_ring);
  add("torch", "2.15.0", "2.15.0", kReduce, 3, 4, 1, 1000, "Gloo's ring", gloos_ring);
  add("jaxlib", "0.6.2", "0.10.2", kAllReduce, 3, 5, 1, 16384, "Gloo's ring", gloos_ring);
  rows.back().types = RowTypes::kNoBFloat16;
  add("jaxlib", "0.6.2", "0.10.2", kReduceScatterBlock, 3, 5, 1, 16384, "binomial tree",
      as_knomial<2>);
  rows.back().types = RowTypes::kNoBFloat16;
  add("jaxlib", "0.10.2", "0.10.2", kAllReduce, 3, 4, 1, 1000, "Gloo's ring", gloos_ring);
  rows.back().types = RowTypes::kBFloat16Wide;
  add("jaxlib", "0.10.2", "0.10.2", kReduceScatterBlock, 3, 4, 1, 1000, "binomial tree",
      as_knomial<2>);
  rows.back().types = RowTypes::kBFloat16Wide;
  add("tensorflow-cpu", "2.21.0", "2.21.0", kAllReduce, 3, 5, 1, 4096,
      "ring up from c, chunks of whole 64 bytes", tensorflows_ring);
  for (const std::uint32_t ranks : {3U, 4U, 5U}) {
    add("mlx", "0.29.4", "0.32.4", kAllReduce, ranks, ranks, 1, ranks - 1,
        "ring up from c, an element a chunk", around<Direction::kUp, 0, Chunks::kRoundedUp>);
    add("mlx", "0.29.4", "0.32.4", kAllReduce, ranks, ranks, ranks, 8192, "ring down from c",
        around<Direction::kDown, 0, Chunks::kRoundedUp>);
    add("xgboost-cpu", "2.1.4", "3.2.0", kAllReduce, ranks, ranks, 1, ranks - 1, "rank order",
        in_rank_order);
    add("xgboost-cpu", "2.1.4", "3.2.0", kAllReduce, ranks, ranks, ranks, 16384,
        "ring up from c, the last chunk longer", around<Direction::kUp, 0, Chunks::kLastLonger>);
  }
}

// The fifth call of a communicator is the first over shared memory.
void add_mpich(std::vector<AtlasRow>& rows) {
  const auto add = [&rows](const char* first_version, const char* last_version,
                           Collective collective, std::uint32_t first_ranks,
                           std::uint32_t last_ranks, std::uint64_t first, std::uint64_t last,
                           bool is_over_shared_memory, const char* algorithm, auto order) {
    rows.push_back({"mpich", first_version, last_version, collective, first_ranks, last_ranks,
                    kBytes, first, last, is_over_shared_memory ? 5U : 1U,
                    is_over_shared_memory ? kEveryCall : 4U, algorithm, order});
  };
  const char* pieces = "pieces of 8 KiB: to 2 KiB a tree of four children each, then of two";
  add("3.4.3", "3.4.3", kAllReduce, 4, 5, 1, 16384, false, "doubling", by_doubling);
  add("4.2.3", "4.2.3", kAllReduce, 4, 5, 1, 8192, false, "doubling", by_doubling);
  add("4.3.2", "4.3.2", kAllReduce, 4, 5, 1, 16384, false, "doubling", by_doubling);
  add("3.4.3", "3.4.3", kAllReduce, 4, 5, 1, 16384, true, "tree of four children each", as_tree<4>);
  add("4.2.3", "4.2.3", kAllReduce, 4, 5, 1, 8192, true, "tree of four children each", as_tree<4>);
  add("4.3.2", "4.3.2", kAllReduce, 4, 5, 1, 16384, true, pieces, mpichs_pieces);
  add("5.0.2", "5.0.2", kAllReduce, 3, 6, 1, 80000, false, "doubling", by_doubling);
  add("5.0.2", "5.0.2", kAllReduce, 3, 6, 1, 80000, true, pieces, mpichs_pieces);
  add("5.0.2", "5.0.2", kReduce, 3, 4, 1, 8192, false, "doubling", by_doubling);
  add("5.0.2", "5.0.2", kReduce, 5, 5, 1, 2048, false, "binomial tree", as_knomial<2>);
  add("5.0.2", "5.0.2", kReduce, 5, 6, 1, 8192, false, "doubling", by_doubling);
  add("5.0.2", "5.0.2", kReduce, 3, 6, 1, 8192, true, pieces, mpichs_pieces);
  for (const Collective collective : {kReduceScatter, kReduceScatterBlock}) {
    rows.push_back({"mpich", "5.0.2", "5.0.2", collective, 3, 4, kBytes, 1, 524287, 1, kEveryCall,
                    "halving", by_halving});
    rows.push_back({"mpich", "5.0.2", "5.0.2", collective, 3, 4, kBytes, 524288, 786432, 1,
                    kEveryCall, "ring down from c", kDownFromOwn});
  }
}

// Chosen by the processor: these are its rows for one that it has no table of, an AMD EPYC.
void add_intel_mpi(std::vector<AtlasRow>& rows) {
  const auto add = [&rows](std::uint32_t ranks, std::uint64_t first, std::uint64_t last,
                           const char* algorithm, auto order) {
    rows.push_back({"impi-rt", "2021.17.2", "2021.17.2", kAllReduce, ranks, ranks, kBytes, first,
                    last, 1, kEveryCall, algorithm, order});
  };
  rows.push_back({"impi-rt", "2021.14.2", "2021.14.2", kAllReduce, 4, 4, kBytes, 1, 8192, 1,
                  kEveryCall, "doubling", by_doubling});
  add(4, 1, 91, "rank order", in_rank_order);
  add(4, 92, 235, "tree of two children each", as_tree<2>);
  add(4, 236, 367, "rank order", in_rank_order);
  add(4, 368, 1303, "tree of two children each", as_tree<2>);
  add(4, 1304, 8192, "doubling", by_doubling);
  add(5, 8, 8, "k-nomial tree, radix 3", as_knomial<3>);
  add(5, 1, 163, "rank order", in_rank_order);
  add(5, 164, 363, "tree of three children each", as_tree<3>);
  add(5, 364, 6759, "binomial tree", as_knomial<2>);
  add(5, 6760, 8192, "doubling", by_doubling);
}

void add_one_ccl(std::vector<AtlasRow>& rows) {
  const auto add = [&rows](Collective collective, std::uint64_t first, std::uint64_t last,
                           const char* algorithm, auto order) {
    rows.push_back({"oneccl", "2021.17.2", "2022.1.2", collective, 3, 4, kBytes, first, last, 1,
                    kEveryCall, algorithm, order});
  };
  add(kAllReduce, 1, 8192, "doubling", by_doubling);
  add(kAllReduce, 8193, 1600000, "ring up from c+1, the last chunk longer",
      around<Direction::kUp, 1, Chunks::kLastLonger>);
  add(kReduce, 1, 1600000, "doubling", by_doubling);
  add(kReduceScatterBlock, 1, 1600000, "ring down from c", kDownFromOwn);
}

}  // namespace

std::vector<AtlasRow> atlas_rows() {
  std::vector<AtlasRow> rows;
  add_open_mpi(rows);
  add_mpich(rows);
  add_intel_mpi(rows);
  add_one_ccl(rows);
  add_rings(rows);
  return rows;
}

}  // namespace lockstep::reference
