// Arguments: what the command line of `lockstep` says, for all commands together. Internal to cli/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "properties/cli/campaign.h"
#include "properties/cli/commands.h"
#include "properties/cli/component.h"
#include "properties/cli/corpus_check.h"
#include "properties/cli/eval.h"
#include "properties/cli/exhaust.h"
#include "properties/cli/explain.h"
#include "properties/cli/export.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/gate.h"
#include "properties/cli/hosts.h"
#include "properties/cli/matrix.h"
#include "properties/cli/new_project.h"
#include "properties/cli/orders.h"
#include "properties/cli/scaling.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::properties {

struct Arguments {
  char** argv = nullptr;
  std::string lane;  // empty: the simulator, except for torch and python
  std::string subject = "reducer";
  std::string against;  // empty: none
  // Empty: LOCKSTEP_NCCL, or the one that the loader finds; in the simulator its own.
  std::string nccl;
  bool is_played = false;
  std::string contract = "own";
  std::string values = "own";
  std::vector<std::string> subjects;  // of `matrix`
  std::string phase_faults;           // of `matrix`
  std::string faults = "swarm";
  std::string transport;    // empty: all kinds
  std::string metamorphic;  // empty: no case runs twice; all, or names of options
  std::string case_file;
  std::string shell;
  std::vector<std::string> records;
  CorpusCheckOptions corpus_check;
  FuzzOptions fuzz;
  std::string campaign;  // empty: none
  std::string part = "auto";
  std::uint64_t parts = 0;  // 0: as --part or the environment says
  double block_seconds = CampaignOptions().block_seconds;
  CampaignCommandOptions campaign_command;
  HostsOptions hosts;
  RankCommandOptions rank;
  ReplayOptions replay;
  ShrinkCommandOptions shrink;
  GenerateCommandOptions generate;
  ExportOptions to_export;
  ExplainOptions explain;
  GateOptions gate;
  OrdersOptions orders;
  EvalOptions eval;
  ExhaustOptions exhaust;
  ComponentOptions component;
  ScalingOptions scaling;
  MatrixOptions matrix;
  NewOptions new_project;
};

// A command, and what runs when it was given.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

void add_gate(CLI::App& app, Arguments& arguments, std::vector<Command>& commands);

}  // namespace lockstep::properties
