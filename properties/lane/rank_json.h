// What a rank's process and its parent, two processes of one build, send each other: as text
// (JSON), and what the rank observed as bytes (CBOR).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "properties/lane/meeting.h"
#include "properties/lane/observation.h"

namespace lockstep::properties {

struct RankRequest {  // to run a case
  std::string case_text;
  std::uint32_t rank = 0;
  std::string directory;
  std::string subject;
  bool detailed = false;
  bool is_nccl = false;
  std::string net_plan;
};
std::string to_text(const RankRequest& request);
RankRequest rank_request_from(const std::string& text);

struct Arrival {  // at a meeting
  bool finished = false;
  std::uint32_t next_step = 0;
};
std::string to_text(const Arrival& arrival);
std::optional<Arrival> arrival_from(const std::string& text);  // none: it is no arrival

std::string to_text(const Resume& resume);
Resume resume_from(const std::string& text);

std::string to_bytes(const RankObservation& observation, const faults::Fired& fired);
bool from_bytes(const std::string& bytes, RankObservation& observation, faults::Fired& fired);

}  // namespace lockstep::properties
