// campaign: many processes, on many machines, fuzz one seed together, in one folder. Each runs a
// part (`fuzz --campaign`); `campaign report|merge` look at what all of them have done. See
// properties/campaign/README.md.
#pragma once

#include <string>

#include "properties/cli/fuzz.h"

namespace lockstep::properties {

// Runs one part of the campaign in options.campaign->folder. Returns 0, the exit code of the
// part's first failure, 1 if the folder is another campaign's or cannot be written, 2 if the run
// is inconclusive, and 130 after Ctrl-C. A part that starts again goes on where it stopped.
int run_part(const FuzzOptions& options);

struct CampaignCommandOptions {
  std::string folder;
  std::string json;
  std::string out;  // merge: for the cases; empty: FOLDER/merged
  // merge: what to run; empty: what the campaign names, if that is a part of this program.
  std::string subject;
  std::string against;
  std::string program;  // the program's name in commands to replay a case
};

// Each returns 0, the exit code of a failure that the campaign has found, 1 if there is no campaign
// or something cannot be written, 2 if no case has run yet.
int run_campaign_report(const CampaignCommandOptions& options);
int run_campaign_merge(const CampaignCommandOptions& options);

}  // namespace lockstep::properties
