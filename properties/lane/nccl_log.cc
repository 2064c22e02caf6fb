#include "properties/lane/nccl_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace lockstep::properties {
namespace {

// A line is `HOST:PID:TID [DEVICE] NCCL INFO TEXT`, or `NCCL WARN TEXT` behind a time and with the
// source location (src/debug.cc).
constexpr std::string_view kInfo = "NCCL INFO ";
constexpr std::string_view kWarn = "NCCL WARN ";

// The source is src/plugin/net/net_v11.cc; before 2.26 it is src/net.cc.
constexpr std::string_view kLoaded = "NET/Plugin: Loaded net plugin ";
constexpr std::string_view kUsing = "Using network ";  // src/init.cc
// src/graph/rings.cc: the first rank logs "Channel 00/01 : 0 1 2". src/transport/net.cc, p2p.cc and
// shm.cc log "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Lockstep/0".
constexpr std::string_view kChannel = "Channel ";
constexpr std::string_view kVia = " via ";
// src/enqueue.cc: the first rank logs "AllReduce: 64 Bytes -> Algo RING proto SIMPLE
// channel{Lo..Hi}={0..0}"; 2.22 logs "64 Bytes -> Algo 1 proto 2 time 12.5". Other ways have no
// Algo: "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R ..." since 2.27
// (src/scheduler/symmetric_sched.cc), "AllGather [Copy Engine]: 64 Bytes -> cudaMemcpy..." since
// 2.29 and "[Hierarchical CE]" since 2.30 (src/ce_coll.cc).
constexpr std::string_view kWay = " Bytes -> ";
// src/plugin/tuner/tuner_v6.cc; up to 2.26 "Using tuner plugin NAME", and NCCL's own is "internal".
constexpr std::string_view kTuner = "TUNER/Plugin: Using ";
constexpr std::string_view kOwnTuner = "internal";

std::string_view behind(std::string_view text, std::string_view what) {
  const std::size_t at = text.find(what);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + what.size());
}

std::string first_word(std::string_view text) {
  return std::string(text.substr(0, text.find_first_of(" \r")));
}

}  // namespace

void NcclLog::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (const std::string_view info = behind(line, kInfo); !info.empty())
      add_line(info);
    else if (const std::string_view warning = behind(line, kWarn); !warning.empty())
      last_warning_ = warning;
  }
}

void NcclLog::begin_case() {
  NcclLog fresh;
  fresh.plugins_ = std::move(plugins_);
  fresh.tuners_ = std::move(tuners_);
  *this = std::move(fresh);
}

void NcclLog::add_line(std::string_view text) {
  if (text.starts_with(kLoaded)) plugins_.insert(first_word(text.substr(kLoaded.size())));
  if (text.starts_with(kUsing)) networks_.insert(first_word(text.substr(kUsing.size())));
  if (text.starts_with(kTuner) && !text.substr(kTuner.size()).starts_with(kOwnTuner))
    tuners_.insert(std::string(text.substr(kTuner.size())));
  if (text.find(kWay) != std::string_view::npos) add_way(text);
  if (!text.starts_with(kChannel)) return;
  const std::string_view via = behind(text, kVia);
  if (via.empty()) return add_ring(text);
  const std::size_t kind = via.find('/');
  const std::size_t end = kind == std::string_view::npos ? kind : via.find('/', kind + 1);
  ways_.insert(first_word(via.substr(0, end)));
}

void NcclLog::add_ring(std::string_view text) {
  unsigned channel = 0;
  unsigned count = 0;
  int used = 0;
  const std::string line(text);
  if (std::sscanf(line.c_str(), "Channel %u/%u :%n", &channel, &count, &used) != 2 || used == 0)
    return;
  int rank = -1;
  int ranks = 0;
  bool is_ordered = true;
  for (int more = 0; std::sscanf(line.c_str() + used, "%d%n", &rank, &more) == 1; used += more)
    is_ordered = is_ordered && rank == ranks++;
  if (ranks < 2) return;  // a single rank adds nothing
  tells_ring_ = true;
  channels_ = std::max(channels_, count);
  if (!is_ordered) wrong_.insert("the ring is not in the order of ranks: " + line);
}

void NcclLog::add_way(std::string_view text) {
  tells_way_ = true;
  const std::string way(behind(text, kWay));
  std::string algorithm(20, '\0');
  std::string protocol(20, '\0');
  int low = 0;
  int high = 0;
  const int read = std::sscanf(way.c_str(), "Algo %19s proto %19s channel{Lo..Hi}={%d..%d}",
                               algorithm.data(), protocol.data(), &low, &high);
  algorithm.resize(algorithm.find('\0'));
  protocol.resize(protocol.find('\0'));
  const bool is_ring = algorithm == "RING" || algorithm == "1";
  const bool is_simple = protocol == "SIMPLE" || protocol == "2";
  if (read >= 2 && is_ring && is_simple && low == 0 && high == 0) return;
  wrong_.insert(
      "a collective did not go by one channel, Ring and Simple, and no formula is known of another "
      "way: " +
      std::string(text));
}

Status NcclLog::check(const std::string& network, bool is_plugin, const Made& made) const {
  const auto wrong = [this](std::string what) {
    if (!last_warning_.empty()) what += "; NCCL's last warning: " + last_warning_;
    return Status(Code::kInternal,
                  std::move(what) +
                      "; look for NCCL_ variables of yours that say otherwise (NCCL_CONF_FILE and "
                      "/etc/nccl.conf count, too)");
  };
  if (made.has_run && networks_.empty())
    return wrong("NCCL's log does not say which network it uses, so nothing is proven of it");
  for (const std::string& used : networks_)
    if (used != network)
      return wrong(fmt::format("NCCL uses the network {} instead of {}{}", used, network,
                               is_plugin ? ": the plug-in was not loaded, or failed" : ""));
  if (made.has_run && is_plugin && !plugins_.contains(network))
    return wrong(fmt::format("NCCL's log does not say that it loaded the plug-in {}", network));
  if (made.has_led && !tells_ring_)
    return wrong("NCCL's log tells of no ring, so nothing is proven of the order of additions");
  if (made.has_summed && !tells_way_)
    return wrong(
        "NCCL's log tells of no collective by which way it went, so nothing is proven of the order "
        "of additions");
  if (!tuners_.empty())
    return wrong(fmt::format(
        "NCCL uses the tuner plug-in {}, which may cut sums in another way than the model knows",
        *tuners_.begin()));
  if (channels_ > 1) return wrong(fmt::format("NCCL made {} channels instead of one", channels_));
  for (const std::string& way : ways_)
    if (way != "NET/" + network)
      return wrong(fmt::format("ranks are connected by {} instead of NET/{}", way, network));
  if (!wrong_.empty()) return wrong(*wrong_.begin());
  return {};
}

}  // namespace lockstep::properties
