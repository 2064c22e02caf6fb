// Compares versions of NCCL with what nccl_api.h and the plug-in assume, and with one another.
//
// Facts of a version are values by section and name. A fact that contradicts what Lockstep assumes
// is a problem; one that differs from the version before is a difference, with both values.
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "benchmarks/nccl_versions/header_layout.h"
#include "benchmarks/nccl_versions/library_probe.h"

namespace lockstep::benchmarks {

// A version as it was found in a cache: the name of its folder, its library and its header.
struct NcclColumn {
  std::string name;
  LibraryProbe library;
  HeaderLayout header;
};

// By section, then by name. A name that a section lacks has the value kAbsent.
using NcclFacts = std::map<std::string, std::map<std::string, std::string>>;
constexpr const char* kAbsent = "-";

NcclFacts facts_of(const NcclColumn& column);

// Lines such as "2.18.3: nccl_api.h expects ncclCommSplit since 2.18.1, and the library lacks it".
std::vector<std::string> problems_of(const NcclColumn& column, const std::string& own_network);

// Lines such as "2.18.3 -> 2.21.5, functions: `-` -> `yes`: ncclMemAlloc; ncclMemFree".
std::vector<std::string> differences(const NcclColumn& before, const NcclColumn& after);

struct NcclReport {
  std::string markdown;
  std::string json;
  std::vector<std::string> problems;
};
// `own_network` is the name by which NCCL knows the plug-in of Lockstep.
NcclReport report_on(const std::vector<NcclColumn>& columns, const std::string& own_network);

}  // namespace lockstep::benchmarks
