// `lockstep orders`: measures in which orders a library adds, and compares that with what is
// recorded (reference/atlas.h). Returns the program's exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::properties {

struct OrdersOptions {
  std::string library;  // NAME or NAME==VERSION, or a shared library's file
  std::string adapter;  // a Python file; empty: that of the library
  std::string python;   // empty: LOCKSTEP_PYTHON, or python3
  std::vector<std::uint32_t> ranks = {3, 4, 5};
  std::vector<std::string> collectives;  // empty: all that the adapter has
  std::vector<std::string> dtypes = {"float32"};
  std::vector<std::uint64_t> sizes;  // elements; empty: searched up to `most_elements`
  std::uint64_t most_elements = 262144;
  std::uint32_t calls = 6;
  std::uint32_t repeats = 2;
  bool lists_recorded = false;  // prints the atlas, and measures nothing
  std::string record;           // a file to which the sums' hashes are written; empty: none
};

CLI::App* add_orders(CLI::App& app, OrdersOptions& options);

// 0 if every order was found and none differs from a recorded one; 2 if one was not found; 65 if
// one is not the recorded one; 72 if ranks got different sums; 1 if the library cannot be measured.
int run_orders(const OrdersOptions& options);

}  // namespace lockstep::properties
