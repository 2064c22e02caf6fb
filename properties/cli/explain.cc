#include "properties/cli/explain.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include "properties/cli/number_options.h"
#include "properties/cli/output.h"
#include "properties/explain/atlas_match.h"
#include "properties/explain/explain_bits.h"
#include "properties/explain/npy.h"
#include "properties/oracle/verdict.h"

namespace lockstep::properties {
namespace {

Status does_not_fit(const std::string& file, const NpyArray& array, const NpyArray& first) {
  const auto refused = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: it has {} than the result", file, what));
  };
  if (array.dtype != first.dtype) return refused("another dtype");
  if (array.sizes != first.sizes) return refused("another shape");
  if (array.is_column_major != first.is_column_major) return refused("another order in memory");
  return {};
}

// The numbers of the options fit the array, and the arithmetic of the orders. `elements` are those
// of the array.
Status check_numbers(const ExplainOptions& options, std::uint64_t elements) {
  constexpr std::uint64_t kMostElements = std::uint64_t{1} << 32U;
  const auto refused = [](std::string what) {
    return Status(Code::kInvalidArgument, std::move(what));
  };
  if (options.divisor > std::numeric_limits<std::uint32_t>::max())
    return refused(fmt::format("--divisor: {} is too large", options.divisor));
  if (options.offset > kMostElements || options.count > kMostElements)
    return refused(
        fmt::format("--offset and --count: no buffer has more than {} elements", kMostElements));
  if (options.count > 0 && options.offset + elements > options.count)
    return refused(fmt::format(
        "--count: {} elements are too few for the array, which has {} behind the {} of --offset",
        options.count, elements, options.offset));
  return {};
}

// Values that have the same sum in every order say nothing about the order.
std::string what_would_tell(const std::vector<BitsExplanation>& found, std::size_t ranks,
                            std::size_t values) {
  if (found.empty() || found.front().order != kAnyOrder) return {};
  if (ranks == 2) return "two ranks have one order: sums of three or more tell orders apart\n";
  return fmt::format(
      "in every order these {} values have the same sums: 100 or more random values, with all bits "
      "of the mantissa, tell orders apart\n",
      values);
}

}  // namespace

CLI::App* add_explain_bits(CLI::App& app, ExplainOptions& options) {
  CLI::App* command = app.add_subcommand(
      "explain-bits", "say which computation makes the bits of an averaged gradient");
  command->add_option("result", options.result, "the average, as a file of numpy.save()")
      ->required();
  command
      ->add_option("--rank", options.ranks,
                   "what a rank contributed, before the average; once for each rank, in order")
      ->required();
  command->add_option("--before", options.before, "the average of the pass before");
  add_whole(*command, "--divisor", options.divisor,
            "of the average; the number of ranks if left out", 1);
  add_whole(*command, "--offset", options.offset,
            "elements before the array in the buffer that was reduced");
  add_whole(*command, "--count", options.count, "elements of that buffer, if it is larger", 1);
  add_whole(*command, "--nccl-chunk", options.nccl_chunk,
            "bytes of a chunk of NCCL's ring, a multiple of 4096; 2097152 if left out", 4096);
  return command;
}

int run_explain_bits(const ExplainOptions& options) {
  const Result<NpyArray> result = read_npy(options.result);
  if (!result) return complain(result.error());
  if (result->bits.empty()) return complain(options.result + ": it has no elements");
  if (options.ranks.size() > reference::kMaxWorld)
    return complain(fmt::format("--rank: {} arrays; the orders are known for up to {} ranks",
                                options.ranks.size(), reference::kMaxWorld));
  if (options.nccl_chunk % 4096 != 0)
    return complain(fmt::format("--nccl-chunk: {} is not a multiple of 4096", options.nccl_chunk));
  AverageInputs inputs;
  if (options.nccl_chunk > 0) inputs.nccl_chunk_bytes = options.nccl_chunk;
  inputs.dtype = result->dtype;
  inputs.divisor = static_cast<std::uint32_t>(options.divisor);
  const std::uint64_t parts = reference::parts_of(result->dtype);
  if (const Status status = check_numbers(options, result->bits.size() / parts); !status.ok())
    return complain(status);
  inputs.offset = options.offset * parts;
  inputs.buffer_count = options.count * parts;
  const auto read = [&](const std::string& file, std::vector<std::uint64_t>& bits) -> Status {
    Result<NpyArray> array = read_npy(file);
    if (!array) return array.error();
    bits = std::move(array->bits);
    array->bits.clear();
    return does_not_fit(file, *array, *result);
  };
  for (const std::string& file : options.ranks)
    if (const Status status = read(file, inputs.ranks.emplace_back()); !status.ok())
      return complain(status);
  if (!options.before.empty())
    if (const Status status = read(options.before, inputs.before); !status.ok())
      return complain(status);
  const auto found = explain_bits(inputs, result->bits);
  tell(fmt::format("{}: {}\n", options.result, to_text(found, result->bits.size())));
  if (const std::string hint = what_would_tell(found, inputs.ranks.size(), result->bits.size());
      !hint.empty())
    tell(hint);
  else if (result->dtype != reference::DType::kComplex64)
    tell(text_of(match_atlas(inputs, result->bits), inputs));
  if (found.empty() || found.front().matches < result->bits.size()) return kInconclusive;
  return found.front().mistake.empty() ? 0 : static_cast<int>(Failing::kWrongBits);
}

}  // namespace lockstep::properties
