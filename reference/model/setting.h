// Setting: what does not change in a run of the model: the program as one reducer sees it, and what
// that does with each of the parameters. Plain data; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/contract.h"
#include "reference/model/engine.h"
#include "reference/program.h"
#include "reference/state.h"

namespace lockstep::reference {

struct ParameterRoles {
  // The first owner of each parameter's tensor, or kNotTrained where that is frozen.
  std::vector<std::uint32_t> owners;
  std::vector<std::uint32_t> trained;  // the owners, ascending
  std::vector<std::uint32_t> parts;    // those that the reducer reduces, in every replica (P15)
  std::vector<std::uint32_t> reduced;  // those of the first replica alone
  // By part: the parameter of the first replica that it is summed with.
  std::vector<std::uint32_t> originals;
  // By reduced parameter: its own part and those of the other replicas, in replica order.
  std::vector<std::vector<std::uint32_t>> replicas;
  // By trained parameter: where each of its values lies in memory, in row-major order.
  std::vector<std::vector<std::uint32_t>> positions;
};

struct Setting {
  Program program;
  Contract contract;
  std::uint32_t group = 0;  // the number of the ranks' group among those of the program
  ParameterRoles roles;
  std::vector<StateTensor> tensors;  // S3

  const Replicated& options() const { return program.options; }
  const Parameter& parameter(std::uint32_t p) const { return program.parameters[p]; }
};

Setting make_setting(Program program, const Contract& contract, std::uint32_t group);

}  // namespace lockstep::reference
