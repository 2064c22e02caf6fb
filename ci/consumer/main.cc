// Uses the installed library as its users do: its headers by the names that they have in the
// sources, and its code.
#include <iostream>
#include <string>

#include "reducer/base/status.h"
#include "reducer/comm/store.h"

int main() {
  lockstep::HashStore store;
  const lockstep::Result<bool> first = store.set("key", "value");
  if (!first || !*first) {
    std::cerr << "a new key could not be set\n";
    return 1;
  }
  const lockstep::Result<bool> second = store.set("key", "other");
  if (!second || *second) {
    std::cerr << "a key could be set twice\n";
    return 1;
  }
  const auto soon = lockstep::platform::Deadline::in(std::chrono::milliseconds(1));
  const lockstep::Result<std::string> value = store.get("key", soon);
  if (!value || *value != "value") {
    std::cerr << "the store lost its value\n";
    return 1;
  }
  const lockstep::Result<std::string> missing = store.get("no such key", soon);
  if (missing) {
    std::cerr << "a key that no one set has a value\n";
    return 1;
  }
  std::cout << "the package works\n";
  return 0;
}
