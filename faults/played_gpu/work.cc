#include "faults/played_gpu/work.h"

#include <bit>
#include <cstring>

#include "reducer/base/check.h"

namespace lockstep::played {
namespace {

Status not_played(const std::string& what) {
  return Status(Code::kInvalidArgument, "the played GPU does not play " + what);
}

template <class T>
T at(const std::byte* data, std::size_t offset) {
  T value;
  std::memcpy(&value, data + offset, sizeof value);
  return value;
}

bool is_reduction(const Function& function) {
  using enum Function::Kind;
  return function.kind == kAllReduce || function.kind == kReduce || function.kind == kReduceScatter;
}

std::int64_t bits(std::uint64_t word, int first, int count) {
  return static_cast<std::int64_t>(word >> first & ((std::uint64_t{1} << count) - 1));
}

}  // namespace

std::size_t bytes_of_type(int type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? kBytes[type] : 0;
}

Work::Work(const Layout& layout, std::span<const int> row_to_id,
           std::span<const std::byte> arguments)
    : layout_(layout), row_to_id_(row_to_id), bytes_(arguments) {
  LOCKSTEP_CHECK_GE(arguments.size(), sizeof arguments_);
  std::memcpy(&arguments_, arguments.data(), sizeof arguments_);
}

std::vector<int> Work::channels() const {
  std::vector<int> all;
  for (int channel = 0; channel < 64; ++channel)
    if ((arguments_.channels >> channel & 1) != 0) all.push_back(channel);
  return all;
}

const std::byte* Work::description(const WorkBatch& batch, std::size_t index,
                                   std::size_t bytes) const {
  const std::size_t offset = batch.offset + index * bytes;
  if (arguments_.storage == kInArguments) {
    LOCKSTEP_CHECK_LE(offset + bytes, bytes_.size());
    return bytes_.data() + offset;
  }
  return arguments_.descriptions + (offset & arguments_.mask);
}

Result<CollectiveWork> Work::collective(const std::byte* data, std::uint32_t function_id,
                                        int channel) const {
  const Result<Function> function =
      find_function(layout_, row_to_id_, static_cast<int>(function_id));
  if (!function) return failed(function.error());
  if (is_reduction(*function) && function->operation != kSum && function->operation != kPreMulSum)
    return failed(not_played("reductions other than sums"));
  const auto flags = at<std::uint32_t>(data, 0);
  if ((flags & layout_.coll_registered_bits) != 0)
    return failed(not_played("collectives over registered buffers"));
  CollectiveWork out;
  out.function = *function;
  if (is_reduction(*function) && bytes_of_type(function->type) == 0)
    return failed(not_played("sums of 8-bit floating-point numbers"));
  const std::size_t size = is_reduction(*function) ? bytes_of_type(function->type) : 1;
  out.root = static_cast<int>(at<std::uint32_t>(data, 4));
  out.send_data = at<std::byte*>(data, layout_.coll_send_buffer);
  out.receive_data = at<std::byte*>(data, layout_.coll_receive_buffer);
  out.scalar_is_pointer = (flags >> 24 & 1) != 0;
  out.scalar = at<std::uint64_t>(data, layout_.coll_scalar);
  const auto low = static_cast<int>(flags & 0xff);
  const auto high = static_cast<int>(flags >> 8 & 0xff);
  const auto first = at<std::int64_t>(data, layout_.coll_counts);
  const auto middle = at<std::int64_t>(data, layout_.coll_counts + 8);
  const auto last = at<std::int64_t>(data, layout_.coll_counts + 16);
  const auto grains = at<std::uint64_t>(data, layout_.coll_counts + 24);
  const std::int64_t per_grain = static_cast<std::int64_t>(kGrainBytes / size);
  const std::int64_t between = high - low - 1;  // -1 if there is one channel: then middle is 0
  out.count = first + middle * between + last;
  if (channel == low) {
    out.part = first;
    out.chunk = bits(grains, 0, 21) * per_grain;
  } else if (channel == high) {
    out.offset = first + middle * between;
    out.part = last;
    out.chunk = bits(grains, 42, 21) * per_grain;
  } else {
    out.offset = first + middle * (channel - low - 1);
    out.part = middle;
    out.chunk = bits(grains, 21, 21) * per_grain;
  }
  return out;
}

Result<Batch> Work::read(std::uint32_t kind, std::uint32_t function_id, int channel,
                         const std::vector<WorkBatch>& parts) const {
  Batch out;
  if (kind != kKindP2p && kind != kKindCollective)
    return failed(not_played("work of the kind " + std::to_string(kind) +
                             " (collectives over registered buffers, or several broadcasts)"));
  const std::size_t bytes = kind == kKindP2p ? sizeof(P2pWork) : layout_.coll_bytes;
  for (const WorkBatch& part : parts) {
    for (int index = 0; index < 64; ++index) {
      if ((part.works >> index & 1) == 0) continue;
      const std::byte* const data = description(part, static_cast<std::size_t>(index), bytes);
      if (kind == kKindP2p) {
        const auto work = at<P2pWork>(data, 0);
        if ((work.flags & kP2pIsLl) != 0) return failed(not_played("send and receive by LL"));
        if ((work.flags & kP2pIsRegistered) != 0)
          return failed(not_played("send and receive over registered buffers"));
        out.p2p.push_back(work);
      } else {
        const Result<CollectiveWork> work = collective(data, function_id, channel);
        if (!work) return failed(work.error());
        out.collectives.push_back(*work);
      }
    }
    out.consumed = part.offset + static_cast<std::uint32_t>(std::bit_width(part.works)) *
                                     static_cast<std::uint32_t>(bytes);
  }
  return out;
}

Result<std::vector<Batch>> Work::batches_of(std::size_t nth) const {
  const int channel = channels()[nth];
  std::vector<Batch> all;
  std::size_t at_batch = nth;
  for (bool goes_on = true; goes_on;) {
    std::vector<WorkBatch> parts;
    std::uint32_t flags = 0;
    do {
      const std::size_t offset = sizeof arguments_ + at_batch * sizeof(WorkBatch);
      LOCKSTEP_CHECK_LE(offset + sizeof(WorkBatch), bytes_.size());
      parts.push_back(at<WorkBatch>(bytes_.data(), offset));
      flags = parts.back().flags;
      at_batch += flags & 0x3fff;
    } while ((flags >> 14 & 1) != 0);
    goes_on = (flags & 0x3fff) != 0;
    const std::uint32_t function = flags >> 17 & ((1U << layout_.function_bits) - 1);
    Result<Batch> batch = read(flags >> 15 & 3, function, channel, parts);
    if (!batch) return failed(batch.error());
    all.push_back(std::move(*batch));
  }
  return all;
}

}  // namespace lockstep::played
