#include "properties/compare/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "faults/nccl_net/lockstep_net.h"
#include "properties/compare/step_model.h"
#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/nccl/nccl_link.h"
#include "reducer/comm/nccl/nccl_process_group.h"
#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;
using Kind = Operation::Kind;
using platform::Deadline;
using platform::Duration;

constexpr Duration kLimit = std::chrono::seconds(20);  // of one operation, and of one meeting
constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr Duration kPoll = std::chrono::microseconds(500);
constexpr Duration kGrace = std::chrono::milliseconds(500);
constexpr auto kUntilOneHasBegun = std::chrono::milliseconds(20);  // an operation

// What NCCL chooses by itself when it is not pinned.
constexpr const char* kPins[] = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS",
                                 "NCCL_MAX_NCHANNELS"};

// NCCL's name for these threads, where NCCL_SET_THREAD_NAME is 1.
constexpr const char* kProxy = "NCCL Progress";

std::int64_t now_ns() { return platform::now().count(); }

NcclDataType type_of(reference::DType dtype) {
  switch (dtype) {
    case reference::DType::kFloat64:
      return NcclDataType::kFloat64;
    case reference::DType::kFloat16:
      return NcclDataType::kFloat16;
    case reference::DType::kBFloat16:
      return NcclDataType::kBfloat16;
    default:
      return NcclDataType::kFloat32;
  }
}

Status never_gives_up() { return {}; }
Status as_it_is(Status error) { return error; }

// For how long the threads that move NCCL's messages have run in this process.
std::int64_t proxy_ns() {
  std::int64_t sum = 0;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    if (!std::getline(std::ifstream(thread.path() / "comm"), name)) continue;
    std::int64_t ran_ns = 0;
    if (name.starts_with(kProxy) && std::ifstream(thread.path() / "schedstat") >> ran_ns)
      sum += ran_ns;
  }
  return sum;
}

std::string hex_of(const NcclUniqueId& id) {
  std::string out;
  for (const char c : id.internal) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

NcclUniqueId id_of(const std::string& hex) {
  NcclUniqueId id{};
  for (std::size_t i = 0; i < sizeof id.internal && 2 * i + 1 < hex.size(); ++i)
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return id;
}

class RankProcess {
 public:
  RankProcess(const RankPlace& place, const std::vector<PreparedOperation>& operations,
              const MeetingPoint& everyone, const MeetingPoint& survivors)
      : place_(place), operations_(operations), everyone_(everyone), survivors_(survivors) {}

  Json serve(const Json& request);

 private:
  using Reply = Result<Json>;
  // When one repetition began and ended here. The host's part is known of a plain sum.
  struct Sample {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t enqueue_ns = 0;  // until the call returned
    std::int64_t proxy_ns = 0;    // for which NCCL's proxy ran
    SentMessages sent;
  };

  Reply load(const Json& request);
  Reply make_id(const Json& request);
  Reply init(const Json& request);
  Reply measure(const Json& request);
  Reply destroy(const Json& request);
  Reply shrink(const Json& request);
  Reply abort(const Json& request);
  Reply connect(const Json& request);
  Reply disconnect(const Json& request);
  Reply until_failure(const Json& request);

  bool is_last() const { return place_.rank == place_.ranks - 1; }
  Status meet(const MeetingPoint& where) const;
  Status reserve(std::size_t bytes);
  Status wait(NcclLink* link) const;
  Result<Sample> all_reduce(NcclLink& link, const PreparedOperation& operation,
                            const MeetingPoint& where);
  Result<Sample> rank_ordered(const PreparedOperation& operation);
  Result<Sample> step(std::size_t index);
  Result<Sample> once(std::size_t index);
  Status read_result(const PreparedOperation& operation, std::size_t index,
                     std::vector<std::byte>& into);
  const std::vector<std::byte>& input(const PreparedOperation& operation) const {
    return operation.inputs[static_cast<std::size_t>(place_.rank)];
  }

  const RankPlace& place_;
  const std::vector<PreparedOperation>& operations_;
  const MeetingPoint& everyone_;
  const MeetingPoint& survivors_;
  NcclApi api_;
  std::unique_ptr<Device> device_;
  Stream stream_;
  Ref<Storage> send_;
  Ref<Storage> receive_;
  std::unique_ptr<NcclLink> link_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<NcclProcessGroup> group_;
  std::map<std::size_t, std::unique_ptr<StepModel>> models_;  // by the operation's index
};

Json RankProcess::serve(const Json& request) {
  using Command = Reply (RankProcess::*)(const Json&);
  static const std::map<std::string, Command> kCommands = {
      {"load", &RankProcess::load},
      {"make_id", &RankProcess::make_id},
      {"init", &RankProcess::init},
      {"measure", &RankProcess::measure},
      {"destroy", &RankProcess::destroy},
      {"shrink", &RankProcess::shrink},
      {"abort", &RankProcess::abort},
      {"connect", &RankProcess::connect},
      {"disconnect", &RankProcess::disconnect},
      {"until_failure", &RankProcess::until_failure}};
  const auto command = kCommands.find(request.at("do").get<std::string>());
  if (command == kCommands.end()) return {{"error", "an unknown command"}, {"code", "internal"}};
  Reply reply = (this->*command->second)(request);
  if (reply) return std::move(*reply);
  return {{"error", reply.error().failure().detail}, {"code", name_of(reply.error().code())}};
}

// Loads the library, into a process that has none yet, and opens the device.
RankProcess::Reply RankProcess::load(const Json&) {
  Variables variables = nccl_variables(place_.setup, place_.run,
                                       static_cast<std::uint32_t>(place_.rank), "/dev/null");
  std::erase_if(variables, [this](const auto& variable) {
    return !place_.is_pinned &&
           std::find(std::begin(kPins), std::end(kPins), variable.first) != std::end(kPins);
  });
  variables.emplace_back("NCCL_DEBUG", "WARN");  // its log costs time
  variables.emplace_back("NCCL_SET_THREAD_NAME", "1");
  variables.emplace_back(LOCKSTEP_NET_PLAN, place_.plan);
  set_variables(variables);
  if (Status status = load_plugin(place_.setup); !status.ok()) return failed(std::move(status));
  const std::int64_t begin = now_ns();
  Result<NcclApi> api = place_.way.load(place_.setup.library);
  if (!api) return failed(api.error());
  const std::int64_t loaded = now_ns();
  api_ = std::move(*api);
  Result<std::unique_ptr<Device>> device = place_.way.open();
  if (!device) return failed(device.error());
  device_ = std::move(*device);
  Result<Stream> stream = device_->new_stream();
  if (!stream) return failed(stream.error());
  stream_ = *stream;
  return Json{{"begin", begin}, {"end", loaded}, {"version", api_.version}, {"pid", ::getpid()}};
}

RankProcess::Reply RankProcess::make_id(const Json&) {
  NcclUniqueId id{};
  if (api_.get_unique_id(&id) != NcclResult::kSuccess)
    return failed(Status(Code::kTransport, "ncclGetUniqueId failed"));
  return Json{{"id", hex_of(id)}};
}

RankProcess::Reply RankProcess::init(const Json& request) {
  link_ = std::make_unique<NcclLink>(api_, kPoll, device_->index() - 1);
  const NcclUniqueId id = id_of(request.at("id").get<std::string>());
  if (Status status = meet(everyone_); !status.ok()) return failed(std::move(status));
  Sample sample;
  sample.begin = now_ns();
  const Deadline deadline = Deadline::in(3 * kLimit);
  const auto give_up = [deadline] {
    return deadline.passed() ? Status(Code::kTimeout, "the communicator was not made in time")
                             : Status();
  };
  Status status = link_->init(id, place_.rank, place_.ranks, give_up, as_it_is);
  sample.end = now_ns();
  if (!status.ok()) return failed(std::move(status));
  return Json{{"begin", sample.begin}, {"end", sample.end}};
}

Status RankProcess::meet(const MeetingPoint& where) const {
  if (where.meet(Deadline::in(kLimit))) return {};
  return Status(Code::kTimeout, "the other ranks did not come");
}

Status RankProcess::reserve(std::size_t bytes) {
  for (Ref<Storage>* const storage : {&send_, &receive_}) {
    if (*storage && (*storage)->bytes() >= bytes) continue;
    Result<Ref<Storage>> made = device_->allocate(bytes);
    if (!made) return made.error();
    *storage = std::move(*made);
  }
  return {};
}

// Waits until the stream has done what was submitted to it. `link` may have failed meanwhile.
Status RankProcess::wait(NcclLink* link) const {
  const Event event = device_->record(stream_);
  const Deadline deadline = Deadline::in(kLimit);
  while (true) {
    Status status = device_->synchronize(event, Deadline::in(kLook));
    if (status.ok() || status.code() != Code::kTimeout) return status;
    if (link != nullptr) LOCKSTEP_RETURN_IF_ERROR(link->look());
    if (deadline.passed()) return Status(Code::kTimeout, "the operation did not end in time");
  }
}

Result<RankProcess::Sample> RankProcess::all_reduce(NcclLink& link,
                                                    const PreparedOperation& operation,
                                                    const MeetingPoint& where) {
  const std::vector<std::byte>& from = input(operation);
  Status status = reserve(from.size());
  if (status.ok()) status = write(*device_, from, send_->data(), Deadline::in(kLimit));
  if (status.ok()) {
    device_->fill_zero(stream_, receive_->data(), from.size());
    status = wait(nullptr);
  }
  const SentMessages sent = sent_messages(place_.setup);
  const std::int64_t proxy = proxy_ns();
  if (status.ok()) status = meet(where);
  if (!status.ok()) return failed(std::move(status));
  Sample sample;
  sample.begin = now_ns();
  status = link.call("ncclAllReduce", [&](NcclComm comm) {
    return api_.all_reduce(send_->data(), receive_->data(), operation.operation.count(),
                           type_of(operation.operation.dtype), NcclRedOp::kSum, comm,
                           device_->native(stream_));
  });
  sample.enqueue_ns = now_ns() - sample.begin;
  if (status.ok()) status = wait(&link);
  sample.end = now_ns();
  if (status.ok()) status = meet(where);  // comparing takes processor time from slower ranks
  if (!status.ok()) return failed(std::move(status));
  // All ranks have the sum, so all messages were sent.
  sample.proxy_ns = proxy_ns() - proxy;
  const SentMessages all = sent_messages(place_.setup);
  sample.sent = {all.messages - sent.messages, all.bytes - sent.bytes};
  return sample;
}

Result<RankProcess::Sample> RankProcess::rank_ordered(const PreparedOperation& operation) {
  const std::vector<std::byte>& from = input(operation);
  Status status = reserve(from.size());
  if (status.ok()) status = write(*device_, from, receive_->data(), Deadline::in(kLimit));
  if (status.ok()) status = meet(everyone_);
  if (!status.ok()) return failed(std::move(status));
  Collective collective;
  collective.dtype = DType::kFloat32;
  collective.count = operation.operation.count();
  collective.reduction = Reduction::kRankOrdered;
  collective.data = receive_->data();
  collective.device = device_.get();
  Sample sample;
  sample.begin = now_ns();
  collective.ready = device_->record(device_->current_stream());
  status = run(*group_, collective);
  sample.end = now_ns();
  if (status.ok()) status = meet(everyone_);
  if (!status.ok()) return failed(std::move(status));
  return sample;
}

Result<RankProcess::Sample> RankProcess::step(std::size_t index) {
  std::unique_ptr<StepModel>& model = models_[index];
  if (model == nullptr) {
    const std::string prefix = fmt::format("step/{}", index);
    auto made =
        StepModel::create(*device_, {group_, std::make_shared<PrefixStore>(prefix, store_)},
                          step_parameters(operations_[index].operation), input(operations_[index]));
    if (!made) return failed(made.error());
    model = std::move(*made);
    for (int i = 0; i < 2; ++i) {  // after these two its buckets are final
      Status status = model->prepare();
      if (status.ok()) status = model->step();
      if (!status.ok()) return failed(std::move(status));
    }
  }
  Status status = model->prepare();
  if (status.ok()) status = meet(everyone_);
  if (!status.ok()) return failed(std::move(status));
  Sample sample;
  sample.begin = now_ns();
  status = model->step();
  sample.end = now_ns();
  if (status.ok()) status = meet(everyone_);
  if (!status.ok()) return failed(std::move(status));
  return sample;
}

Result<RankProcess::Sample> RankProcess::once(std::size_t index) {
  const PreparedOperation& operation = operations_[index];
  switch (operation.operation.kind) {
    case Kind::kAllReduce:
      return all_reduce(*link_, operation, everyone_);
    case Kind::kRankOrdered:
      return rank_ordered(operation);
    case Kind::kStep:
      break;
  }
  return step(index);
}

Status RankProcess::read_result(const PreparedOperation& operation, std::size_t index,
                                std::vector<std::byte>& into) {
  into.resize(operation.expected.size());
  if (operation.operation.kind == Kind::kStep) return models_.at(index)->read_averages(into);
  return read(*device_, receive_->data(), into, Deadline::in(kLimit));
}

// Repeats an operation; "keep" is a file for the bits of the first repetition.
RankProcess::Reply RankProcess::measure(const Json& request) {
  const auto index = request.at("operation").get<std::size_t>();
  const PreparedOperation& operation = operations_.at(index);
  Json reply = {{"begin", Json::array()}, {"end", Json::array()}};
  const auto add = [&reply](const char* field, auto value) { reply[field].push_back(value); };
  std::uint64_t wrong = 0;
  std::vector<std::byte> result;
  for (int i = 0; i < request.at("repetitions").get<int>(); ++i) {
    Result<Sample> sample = once(index);
    if (!sample) return failed(sample.error());
    add("begin", sample->begin);
    add("end", sample->end);
    if (operation.operation.kind == Kind::kAllReduce) {
      add("enqueue", sample->enqueue_ns);
      add("proxy", sample->proxy_ns);
      add("messages", sample->sent.messages);
      add("bytes", sample->sent.bytes);
    }
    if (Status status = read_result(operation, index, result); !status.ok())
      return failed(std::move(status));
    wrong += count_differences(result, operation.expected,
                               reference::size_of(operation.operation.dtype));
    if (i > 0 || place_.rank > 0 || !request.contains("keep")) continue;
    std::ofstream file(request.at("keep").get<std::string>(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(result.data()),
               static_cast<std::streamsize>(result.size()));
    if (!file.flush())
      return failed(Status(Code::kTransport, "the bits of a result cannot be written to " +
                                                 request.at("keep").get<std::string>()));
  }
  reply["wrong"] = wrong;
  return reply;
}

RankProcess::Reply RankProcess::destroy(const Json&) {
  if (Status status = meet(everyone_); !status.ok()) return failed(std::move(status));
  const std::int64_t begin = now_ns();
  link_->leave(Deadline::in(kLimit));
  const std::int64_t end = now_ns();
  link_.reset();
  return Json{{"begin", begin}, {"end", end}};
}

// Makes a communicator without the last rank, which is not asked, and sums on it.
RankProcess::Reply RankProcess::shrink(const Json& request) {
  if (api_.comm_shrink == nullptr) return Json{{"lacks", "ncclCommShrink"}};
  const PreparedOperation& operation = operations_.at(request.at("operation").get<std::size_t>());
  NcclLink child(api_, kPoll, device_->index() - 1);
  if (Status status = meet(survivors_); !status.ok()) return failed(std::move(status));
  Sample sample;
  sample.begin = now_ns();
  Status status = child.init_from(*link_, NcclLink::Parent::kHealthy, {place_.ranks - 1},
                                  place_.rank, place_.ranks - 1, never_gives_up, as_it_is);
  sample.end = now_ns();
  if (!status.ok()) return failed(std::move(status));
  Result<Sample> sum = all_reduce(child, operation, survivors_);
  if (!sum) return failed(sum.error());
  std::vector<std::byte> result(operation.expected.size());
  status = read(*device_, receive_->data(), result, Deadline::in(kLimit));
  if (!status.ok()) return failed(std::move(status));
  const std::uint64_t wrong =
      count_differences(result, operation.expected, reference::size_of(operation.operation.dtype));
  child.leave(Deadline::in(kLimit));
  return Json{{"begin", sample.begin}, {"end", sample.end}, {"wrong", wrong}};
}

// Aborts a communicator. With "operation", all ranks but the last one are in that operation, and
// wait for the last one.
RankProcess::Reply RankProcess::abort(const Json& request) {
  const bool waits = request.contains("operation") && !is_last();
  if (waits) {
    const PreparedOperation& operation = operations_.at(request.at("operation").get<std::size_t>());
    Status status = reserve(input(operation).size());
    if (status.ok())
      status = link_->call("ncclAllReduce", [&](NcclComm comm) {
        return api_.all_reduce(send_->data(), receive_->data(), operation.operation.count(),
                               type_of(operation.operation.dtype), NcclRedOp::kSum, comm,
                               device_->native(stream_));
      });
    if (!status.ok()) return failed(std::move(status));
  }
  std::this_thread::sleep_for(kUntilOneHasBegun);
  if (Status status = meet(everyone_); !status.ok()) return failed(std::move(status));
  const std::int64_t begin = now_ns();
  link_->abort(kGrace);
  Status status = wait(nullptr);
  const std::int64_t end = now_ns();
  if (!status.ok()) return failed(std::move(status));
  link_.reset();
  return Json{{"begin", begin}, {"end", end}};
}

// Makes an NcclProcessGroup.
RankProcess::Reply RankProcess::connect(const Json& request) {
  store_ = std::make_shared<FileStore>(place_.folder);
  NcclOptions options;
  options.timeout = std::chrono::milliseconds(request.at("timeout_ms").get<int>());
  if (Status status = meet(everyone_); !status.ok()) return failed(std::move(status));
  const std::int64_t begin = now_ns();
  auto group =
      NcclProcessGroup::connect(api_, *device_, store_, place_.rank, place_.ranks, options);
  const std::int64_t end = now_ns();
  if (!group) return failed(group.error());
  group_ = std::move(*group);
  return Json{{"begin", begin}, {"end", end}};
}

RankProcess::Reply RankProcess::disconnect(const Json&) {
  if (Status status = meet(everyone_); !status.ok()) return failed(std::move(status));
  models_.clear();
  group_.reset();
  return Json::object();
}

// Runs one operation of the group after the other until one fails, and says how and when.
RankProcess::Reply RankProcess::until_failure(const Json& request) {
  const PreparedOperation& operation = operations_.at(request.at("operation").get<std::size_t>());
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(request.at("limit_ms")));
  std::uint64_t done = 0;
  std::uint64_t wrong = 0;
  std::vector<std::byte> result(operation.expected.size());
  Status status = reserve(operation.expected.size());
  Collective collective;
  collective.count = operation.operation.count();
  collective.reduction = Reduction::kRankOrdered;
  collective.data = receive_->data();
  collective.device = device_.get();
  while (status.ok() && !deadline.passed()) {
    status = write(*device_, input(operation), receive_->data(), Deadline::in(kLimit));
    if (!status.ok()) break;
    collective.ready = device_->record(device_->current_stream());
    status = run(*group_, collective);
    if (!status.ok()) break;
    status = read(*device_, receive_->data(), result, Deadline::in(kLimit));
    wrong += count_differences(result, operation.expected, sizeof(float));
    ++done;
  }
  const std::int64_t end = now_ns();
  if (status.ok()) return Json{{"end", end}, {"done", done}, {"wrong", wrong}, {"told", "nothing"}};
  return Json{{"end", end},
              {"done", done},
              {"wrong", wrong},
              {"told", name_of(status.code())},
              {"text", status.failure().detail}};
}

}  // namespace

void serve_rank(ChildLine& line, const RankPlace& place,
                const std::vector<PreparedOperation>& operations, const MeetingPoint& everyone,
                const MeetingPoint& survivors) {
  // Never destroyed: NCCL and the device have threads, and the process ends as it is.
  auto* const process = new RankProcess(place, operations, everyone, survivors);
  std::string text;
  while (line.receive(text)) {
    Json reply;
    try {
      reply = process->serve(Json::parse(text));
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}, {"code", "internal"}};
    }
    const bool is_sent = line.send(reply.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (!is_sent) return;
  }
}

}  // namespace lockstep::properties
