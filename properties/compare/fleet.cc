#include "properties/compare/fleet.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "properties/compare/stop.h"
#include "properties/process/system_error.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kAnswerLimit{120};
constexpr std::chrono::milliseconds kTurn{200};

Status failed_in(int rank, Code code, const std::string& text) {
  return Status(code, fmt::format("rank {}: {}", rank, text));
}

Code code_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i)
    if (name == name_of(static_cast<Code>(i))) return static_cast<Code>(i);
  return Code::kInternal;
}

// Receives in short turns, to see a signal to this process.
Child::Received receive_from(Child& child, std::string& text, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const auto turn = std::clamp(left, std::chrono::milliseconds(0), kTurn);
    const Child::Received received = child.receive(text, turn);
    if (received != Child::Received::kNothing || left <= turn || stop_signal() != 0)
      return received;
  }
}

std::vector<std::int64_t> numbers(const Json& value) {
  if (value.is_array()) return value.get<std::vector<std::int64_t>>();
  return {value.get<std::int64_t>()};
}

template <class Combine>
std::vector<double> combined_ms(const Fleet::Answers& answers, const char* field, Combine combine) {
  std::vector<std::int64_t> all = numbers(answers.front().at(field));
  for (std::size_t rank = 1; rank < answers.size(); ++rank) {
    const std::vector<std::int64_t> its = numbers(answers[rank].at(field));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = combine(all[i], its.at(i));
  }
  std::vector<double> out;
  for (const std::int64_t each : all) out.push_back(static_cast<double>(each) * 1e-6);
  return out;
}

}  // namespace

Fleet::Fleet(std::string folder, int ranks)
    : folder_(std::move(folder)), everyone_(ranks), survivors_(ranks - 1) {
  for (int rank = 0; rank < ranks; ++rank) children_.push_back(std::make_unique<Child>());
}

Fleet::~Fleet() {
  children_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Result<std::unique_ptr<Fleet>> Fleet::start(const Setup& setup, const std::string& folder,
                                            const std::vector<PreparedOperation>& operations) {
  std::string own = folder + "/ranks-XXXXXX";
  if (::mkdtemp(own.data()) == nullptr)
    return failed(refused_by_system("no folder like " + own + " can be made", errno));
  std::unique_ptr<Fleet> fleet(new Fleet(own, setup.ranks));
  for (int rank = 0; rank < setup.ranks; ++rank) {
    RankPlace place = setup.place;
    place.rank = rank;
    place.ranks = setup.ranks;
    place.folder = own;
    place.run = std::filesystem::path(own).filename().string() + std::to_string(::getpid());
    Fleet& all = *fleet;
    Status status = all.children_[static_cast<std::size_t>(rank)]->start([&](ChildLine& line) {
      serve_rank(line, place, operations, all.everyone_, all.survivors_);
    });
    if (!status.ok()) return failed(std::move(status));
  }
  return fleet;
}

Status Fleet::tell(const Json& request) {
  const std::string text = request.dump();
  for (int rank = 0; rank < ranks(); ++rank)
    if (!children_[static_cast<std::size_t>(rank)]->send(text))
      return failed_in(rank, Code::kPeerLost, "its process does not listen");
  return {};
}

Result<Json> Fleet::answer_of(int rank, std::chrono::milliseconds limit) {
  Child& child = *children_[static_cast<std::size_t>(rank)];
  std::string text;
  switch (receive_from(child, text, limit)) {
    case Child::Received::kMessage:
      break;
    case Child::Received::kNothing:
      if (stop_signal() != 0) return failed(Status(Code::kAborted, "stopped by a signal"));
      return failed(failed_in(rank, Code::kTimeout,
                              fmt::format("it did not answer within {} s", limit.count() / 1000)));
    default:
      return failed(failed_in(rank, Code::kPeerLost, "its process " + child.how_lost()));
  }
  Json answer = Json::parse(text, nullptr, false);
  if (!answer.is_object()) return failed(failed_in(rank, Code::kInternal, "it sent no answer"));
  if (!answer.contains("error")) return answer;
  return failed(failed_in(rank, code_named(answer.value("code", "")), answer["error"]));
}

// Where one rank has failed, the others may wait for it. The first cause is what the others do not
// only report of their peers.
Result<Fleet::Answers> Fleet::ask(const Json& request, int count) {
  if (count == 0) count = ranks();
  const std::string text = request.dump();
  Answers answers;
  Status cause;
  for (int rank = 0; rank < count; ++rank)
    if (!children_[static_cast<std::size_t>(rank)]->send(text))
      return failed(failed_in(rank, Code::kPeerLost, "its process does not listen"));
  for (int rank = 0; rank < count; ++rank) {
    Result<Json> answer = answer_of(rank, kAnswerLimit);
    if (answer) {
      answers.push_back(std::move(*answer));
      continue;
    }
    const bool is_first = cause.ok() || cause.code() == Code::kTimeout;
    if (is_first) cause = answer.error();
  }
  if (!cause.ok()) return failed(std::move(cause));
  return answers;
}

std::vector<double> times_of(const Fleet::Answers& answers) {
  std::vector<std::int64_t> begins = numbers(answers.front().at("begin"));
  std::vector<std::int64_t> ends = numbers(answers.front().at("end"));
  for (const Json& answer : answers) {
    const std::vector<std::int64_t> begin = numbers(answer.at("begin"));
    const std::vector<std::int64_t> end = numbers(answer.at("end"));
    for (std::size_t i = 0; i < begins.size(); ++i) {
      begins[i] = std::min(begins[i], begin.at(i));
      ends[i] = std::max(ends[i], end.at(i));
    }
  }
  std::vector<double> out;
  for (std::size_t i = 0; i < begins.size(); ++i)
    out.push_back(static_cast<double>(ends[i] - begins[i]) * 1e-6);
  return out;
}

std::vector<double> greatest_ms(const Fleet::Answers& answers, const char* field) {
  return combined_ms(answers, field, [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
}

std::vector<double> sums_ms(const Fleet::Answers& answers, const char* field) {
  return combined_ms(answers, field, std::plus<>());
}

std::uint64_t sum_of(const Fleet::Answers& answers, const char* field) {
  std::uint64_t sum = 0;
  for (const Json& answer : answers)
    if (answer.contains(field)) sum += static_cast<std::uint64_t>(numbers(answer[field]).front());
  return sum;
}

}  // namespace lockstep::properties
