#include "properties/hosts/store_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "properties/hosts/store_wire.h"

namespace lockstep::properties::hosts {
namespace {

using std::chrono::milliseconds;

// Besides a wait: for the connection, and for a controller on a busy machine.
constexpr auto kAllowance = std::chrono::seconds(10);
constexpr auto kPauseBeforeRetry = milliseconds(50);
constexpr auto kGoneLimit = milliseconds(500);  // of a store that has answered before
constexpr char kAnswersToGet[] = {kValue, kTimedOut, '\0'};
constexpr char kAnswers[] = {kYes, kNo, '\0'};
constexpr std::uint64_t kMostReply = std::uint64_t{64} << 20;

// A store that does not answer has said nothing about its keys, which kTimeout would.
Status not_reached(Status why) {
  if (why.code() != Code::kTimeout) return why;
  return {Code::kTransport, "the controller's store does not answer: " + why.failure().detail};
}

}  // namespace

Result<std::unique_ptr<StoreClient>> open_store(const std::string& place, std::uint32_t rank) {
  const std::size_t slash = place.rfind('/');
  Result<Address> address = read_address(place.substr(0, slash));
  if (!address) return failed(address.error());
  std::uint64_t generation = 0;
  std::from_chars(place.data() + slash + 1, place.data() + place.size(), generation);
  const char* file = std::getenv("LOCKSTEP_SECRET_FILE");
  Result<Secret> secret = Secret::read(file == nullptr ? "" : file);
  if (!secret) return failed(secret.error());
  return std::make_unique<StoreClient>(std::move(*address), std::move(*secret), rank, generation);
}

Result<Line> connect_as(const Address& address, const Secret& secret, const Greeting& greeting,
                        Clock::time_point deadline) {
  while (true) {
    Result<Line> line = connect_to(address, deadline);
    if (!line) return line;
    const Status status = greet(*line, secret, greeting, deadline);
    if (status.ok()) return line;
    if (status.code() != Code::kPeerLost || Clock::now() >= deadline) return failed(status);
    std::this_thread::sleep_for(kPauseBeforeRetry);
  }
}

Result<Line> StoreClient::idle_line(Clock::time_point deadline) {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      Line line = std::move(idle_.back());
      idle_.pop_back();
      return line;
    }
  }
  if (has_connected_) deadline = std::min(deadline, Clock::now() + kGoneLimit);
  Result<Line> line = connect_as(address_, secret_, greeting_, deadline);
  if (line) has_connected_ = true;
  return line;
}

Result<StoreClient::Reply> StoreClient::ask_over(const Line& line, const std::string& request,
                                                 Clock::time_point deadline) {
  if (Status sent = line.write(request, deadline); !sent.ok()) return failed(sent);
  char bytes[kReplyBytes];
  if (Status got = line.read(bytes, sizeof bytes, deadline); !got.ok()) return failed(got);
  const std::uint64_t count = number_at(bytes + 1, 8);
  if (count > kMostReply)
    return failed(Status(Code::kCorrupted, "the controller's store sent nonsense"));
  Reply reply{bytes[0], {}};
  if (Status got = line.read_text(reply.text, count, deadline); !got.ok()) return failed(got);
  return reply;
}

Result<StoreClient::Reply> StoreClient::ask(char operation, milliseconds wait, std::string_view key,
                                            std::string_view value) {
  const Clock::time_point deadline = Clock::now() + wait + kAllowance;
  Result<Line> line = idle_line(deadline);
  if (!line) return failed(not_reached(line.error()));
  std::string request(1, operation);
  put_number(request, static_cast<std::uint64_t>(wait.count()), 8);
  put_number(request, key.size(), 8);
  put_number(request, value.size(), 8);
  request.append(key).append(value);
  Result<Reply> reply = ask_over(*line, request, deadline);
  if (!reply) return failed(not_reached(reply.error()));
  if (reply->outcome == kRefused)
    return failed(Status(Code::kInvalidArgument, fmt::format("the store {} refused: {}",
                                                             address_.to_string(), reply->text)));
  const std::string_view answers = operation == kGet ? kAnswersToGet : kAnswers;
  if (answers.find(reply->outcome) == std::string_view::npos)
    return failed(Status(Code::kCorrupted, "the controller's store sent nonsense"));
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(*line));
  return reply;
}

Result<bool> StoreClient::set(std::string_view key, std::string_view value) {
  const Result<Reply> reply = ask(kSet, {}, key, value);
  if (!reply) return failed(reply.error());
  return reply->outcome == kYes;
}

Result<std::string> StoreClient::get(std::string_view key, milliseconds wait) {
  Result<Reply> reply = ask(kGet, std::max(wait, milliseconds(0)), key, {});
  if (!reply) return failed(reply.error());
  if (reply->outcome == kValue) return std::move(reply->text);
  return failed(
      Status(Code::kTimeout, fmt::format("nobody set the key '{}' before the deadline", key)));
}

Result<bool> StoreClient::contains(std::string_view key) {
  const Result<Reply> reply = ask(kContains, {}, key, {});
  if (!reply) return failed(reply.error());
  return reply->outcome == kYes;
}

}  // namespace lockstep::properties::hosts
