// The messages between a rank's process and its parent, two processes of one build: text (JSON),
// and the rank's observation as bytes (CBOR).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/observe/meeting.h"
#include "properties/observe/observation.h"

namespace lockstep::properties {

// A request to run a case.
struct RankRequest {
  std::string case_text;
  std::uint32_t rank = 0;
  std::string directory;
  std::string subject;
  bool detailed = false;
  bool is_nccl = false;
  std::string net_plan;
  std::string address;
  std::optional<Joining> joining;  // of a rank that takes the place of another one
  std::string program;             // Subject::rank_program
};
std::string to_text(const RankRequest& request);
RankRequest rank_request_from(const std::string& text);

// The arrival of a rank at a meeting.
struct Arrival {
  bool finished = false;
  std::uint32_t next_step = 0;
};
std::string to_text(const Arrival& arrival);
std::optional<Arrival> arrival_from(const std::string& text);  // nothing if the text is no arrival

std::string to_text(const std::vector<faults::Fault>& faults);
// Nothing if the text is no list of faults.
std::optional<std::vector<faults::Fault>> faults_from(const std::string& text);

std::string to_text(const Resume& resume);
Resume resume_from(const std::string& text);

std::string to_bytes(const RankObservation& observation, const faults::Fired& fired);
bool from_bytes(const std::string& bytes, RankObservation& observation, faults::Fired& fired);

}  // namespace lockstep::properties
