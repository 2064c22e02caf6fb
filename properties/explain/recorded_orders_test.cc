// Claims: the atlas (reference/atlas.h) gives, bit for bit, the sums that the libraries themselves
// made of telling values. recorded/ has the hashes of these, written by `lockstep orders --record`.
//
// What a failure means: a row of the atlas or a family of orders was changed so that it is no
// longer what the library does. Replay: `lockstep orders` with the library of the file's first
// line.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "properties/explain/atlas_match.h"
#include "properties/explain/find_order.h"
#include "properties/explain/order_measurement.h"
#include "reference/arithmetic.h"
#include "reference/atlas.h"
#include "reference/order_families.h"

namespace lockstep::properties {
namespace {

using reference::AtlasRow;
using reference::DType;

struct Record {
  std::string library;
  std::string version;
  std::string collective;
  std::string dtype;
  std::uint32_t ranks = 0;
  std::uint64_t elements = 0;
  std::uint32_t call = 0;
  std::string hash;  // "varies" if equal calls made other sums
};

std::vector<Record> read_records() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_RECORDED_ORDERS))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Record> records;
  for (const auto& file : files) {
    std::ifstream in(file);
    Record record;
    std::string word;
    in >> word >> record.library >> record.version;
    EXPECT_EQ(word, "library") << file;
    while (in >> record.collective >> record.dtype >> record.ranks >> record.elements >>
           record.call >> record.hash)
      records.push_back(record);
    EXPECT_TRUE(in.eof()) << file;
  }
  return records;
}

class Atlas {
 public:
  const AtlasRow* row_of(const Record& record) const {
    const auto dtype = dtype_named(record.dtype);
    const auto collective = reference::collective_named(record.collective);
    if (!dtype || !collective) return nullptr;
    return reference::find_order({record.library, record.version, *collective, record.ranks,
                                  record.elements, *dtype, record.call});
  }

  std::string hash_in(const std::vector<reference::OrderRun>& runs, const Record& record,
                      Rounding rounding = Rounding::kEachAddition) {
    const DType dtype = *dtype_named(record.dtype);
    const OrderFinder& finder =
        finders_.try_emplace({dtype, record.ranks}, dtype, record.ranks).first->second;
    char text[17];
    std::snprintf(text, sizeof text, "%016llx",
                  static_cast<unsigned long long>(hash_of(
                      finder.sums_in(runs, record.elements, rounding), reference::size_of(dtype))));
    return text;
  }

  std::string hash_of_row(const AtlasRow& row, const Record& record) {
    const std::uint64_t bytes = reference::size_of(*dtype_named(record.dtype));
    return hash_in(row.order(record.ranks, record.elements, bytes), record, rounding_of(row.types));
  }

 private:
  std::map<std::pair<DType, std::uint32_t>, OrderFinder> finders_;
};

TEST(RecordedOrders, TheAtlasGivesTheBitsOfTheLibraries) {
  Atlas atlas;
  std::size_t compared = 0;
  for (const Record& record : read_records()) {
    const AtlasRow* row = atlas.row_of(record);
    const std::string about = record.library + " " + record.version + " " + record.collective +
                              " " + record.dtype + ", " + std::to_string(record.ranks) +
                              " ranks, " + std::to_string(record.elements) + " elements, call " +
                              std::to_string(record.call);
    ASSERT_NE(row, nullptr) << "no row for " << about;
    if (row->order == nullptr || record.hash == "varies") {
      EXPECT_EQ(row->order == nullptr, record.hash == "varies") << about;
      continue;
    }
    EXPECT_EQ(atlas.hash_of_row(*row, record), record.hash) << row->algorithm << ": " << about;
    ++compared;
  }
  EXPECT_GE(compared, 300U);
}

// Otherwise a wrong row could pass: the sums of at least 100 elements differ between any two
// orders.
TEST(RecordedOrders, AnotherOrderHasAnotherHash) {
  Atlas atlas;
  std::size_t compared = 0;
  for (const Record& record : read_records()) {
    // In bfloat16 a sum that is rounded once is often the same in every order.
    if (record.elements < 100 || record.hash == "varies" || record.dtype == "bfloat16") continue;
    for (const auto& runs : {reference::chain(record.ranks, record.elements),
                             reference::ring(record.ranks, record.elements,
                                             {reference::Direction::kDown, record.ranks - 2})}) {
      const AtlasRow* row = atlas.row_of(record);
      ASSERT_NE(row, nullptr);
      const std::uint64_t bytes = reference::size_of(*dtype_named(record.dtype));
      const auto own = row->order(record.ranks, record.elements, bytes);
      const auto is_same = [&](const auto& a, const auto& b) {
        return a.end == b.end && reference::is_same_order(a, b, record.ranks);
      };
      if (std::equal(own.begin(), own.end(), runs.begin(), runs.end(), is_same)) continue;
      EXPECT_NE(atlas.hash_in(runs, record), record.hash);
      ++compared;
    }
  }
  EXPECT_GE(compared, 100U);
}

// A row behind a wider one would never be found.
TEST(RecordedOrders, EveryRowHoldsSomewhere) {
  for (const AtlasRow& row : reference::atlas()) {
    bool holds = false;
    for (const std::uint64_t elements : {row.first_size, row.last_size, row.last_size / 4,
                                         row.last_size / 4 * row.first_ranks, std::uint64_t{1}}) {
      for (const std::uint32_t ranks : {row.first_ranks, row.last_ranks})
        for (const char* version : {row.first_version, row.last_version})
          holds = holds || reference::find_order({row.library, version, row.collective, ranks,
                                                  std::max<std::uint64_t>(1, elements),
                                                  row.types == reference::RowTypes::kBFloat16Wide
                                                      ? DType::kBFloat16
                                                      : DType::kFloat32,
                                                  row.first_call}) == &row;
    }
    EXPECT_TRUE(holds) << row.library << " " << row.algorithm << " from size " << row.first_size;
  }
}

TEST(RecordedOrders, ThePageHasTheTable) {
  std::ifstream in(LOCKSTEP_ORDERS_PAGE);
  const std::string page(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(page.find(atlas_table()), std::string::npos)
      << "replace the table of reference/ORDERS.md by what `lockstep orders --recorded` prints";
}

TEST(RecordedOrders, VersionsAreComparedByNumbers) {
  EXPECT_LT(reference::compare_versions("4.9.1", "4.10"), 0);
  EXPECT_EQ(reference::compare_versions("5.0", "5.0.0"), 0);
  EXPECT_GT(reference::compare_versions("2022.0.0", "2021.17.2"), 0);
}

}  // namespace
}  // namespace lockstep::properties
