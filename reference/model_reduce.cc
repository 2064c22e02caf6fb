#include <algorithm>
#include <cassert>

#include "reference/arithmetic.h"
#include "reference/buckets.h"
#include "reference/running_model.h"
#include "reference/values.h"

namespace lockstep::reference {

// What a rank's own error means for the others. A second backward (P7) is reached only when the
// first one had all the others' buckets; every other own error comes whatever the others do.
void Model::decide_outcomes(ExpectedStep& expected) {
  const bool is_blocked = blocking_ranks_ > 0;
  for (const ExpectedRankStep& each : expected.ranks) {
    expected.any_error = expected.any_error || each.error != Error::kNone;
  }
  if (!expected.any_error) return;
  for (const std::uint32_t rank : active_) {
    ExpectedRankStep& each = expected.ranks[rank];
    if (each.error == Error::kNone) {
      each.outcome = is_blocked ? Outcome::kPeerError : Outcome::kSuccessOrPeerError;
    } else if (each.error == Error::kSecondBackward && is_blocked) {
      each.outcome = Outcome::kPeerError;
      each.error = Error::kNone;
      each.error_call = 0;
    } else {
      each.outcome = Outcome::kOwnError;
    }
  }
}

// T2.
void Model::list_collectives(ExpectedStep& expected) {
  const bool has_usage_map = is_dynamic() || (is_static() && !is_counted_);
  ExpectedCollective usage;
  usage.op = ExpectedCollective::Op::kAllReduceUsage;
  usage.count = memory_.reduced.size();
  if (has_usage_map && is_static() && !memory_.reduced.empty())
    expected.collectives.push_back(usage);
  for (std::uint32_t b = 0; b < buckets().size(); ++b) {
    ExpectedCollective collective;
    collective.bucket = b;
    if (buckets()[b].sparse) {  // how many rows
      collective.op = ExpectedCollective::Op::kGatherSparse;
      collective.count = sizeof(std::uint64_t);
      expected.collectives.push_back(collective);
      continue;
    }
    const bool is_compressed = is_power_sgd(buckets()[b]);
    const std::uint32_t parts = parts_of(buckets()[b].dtype);
    collective.count =
        is_compressed ? power_sgd_.first_count(buckets()[b]) : buckets()[b].count * parts;
    const DType wire = wire_dtype(program_.options.hook, buckets()[b].dtype);
    collective.dtype = parts > 1 ? DType::kFloat32 : wire;
    expected.collectives.push_back(collective);
  }
  if (has_usage_map && is_dynamic() && !memory_.reduced.empty())
    expected.collectives.push_back(usage);
  for (std::uint32_t b = 0; b < buckets().size(); ++b) {
    const ExpectedBucket& bucket = buckets()[b];
    ExpectedCollective collective;
    collective.bucket = b;
    if (bucket.sparse) {
      collective.op = ExpectedCollective::Op::kGatherSparse;
      const Parameter& parameter = program_.parameters[bucket.parameters[0]];
      const std::uint64_t rows = most_rows(bucket);
      collective.count = rows * sizeof(std::uint64_t);
      if (rows > 0) expected.collectives.push_back(collective);
      collective.count =
          rows * row_elements(parameter) * size_of(parameter.dtype) / parts_of(parameter.dtype);
      if (collective.count > 0) expected.collectives.push_back(collective);
    } else if (is_power_sgd(bucket)) {
      collective.count = power_sgd_.second_count(bucket);
      expected.collectives.push_back(collective);
    }
  }
}

// G1, G5, G7, G8: of every parameter that some rank used, or in plain mode of every parameter. In
// static mode the counted pass decides (P11).
void Model::reduce() {
  for (const std::uint32_t parameter : memory_.reduced) {
    if (!is_counted_) {
      is_in_use_[parameter] = std::any_of(active_.begin(), active_.end(), [&](std::uint32_t rank) {
        return is_used(rank, parameter);
      });
    }
    if (!is_reduced(parameter) || is_power_sgd(buckets()[memory_.places[parameter].bucket]))
      continue;
    is_sparse(parameter) ? reduce_sparse(parameter) : reduce_one(parameter);
  }
  for (const ExpectedBucket& bucket : buckets())
    if (is_power_sgd(bucket)) reduce_by_power_sgd(bucket);
}

// P15: the sum over the replicas, in their order; what is undefined is left out.
void Model::fold(std::uint32_t rank, std::uint32_t parameter, double* sum) {
  const std::size_t count = memory_.places[parameter].count;
  bool is_first = true;
  const auto add = [&](std::uint32_t part) {
    if (!gradient(rank, part).defined) return;
    if (is_first)
      std::copy_n(elements(rank, part), count, sum);
    else
      add_values(program_.parameters[parameter].dtype, sum, elements(rank, part), count);
    is_first = false;
  };
  add(parameter);
  for (const std::uint32_t copy : copies_[parameter]) add(copy);
  if (is_first) std::fill_n(sum, count, 0.0);
}

// S1: what the rank gives to a sum, not scaled.
Rows Model::rows_of(std::uint32_t rank, std::uint32_t parameter) {
  if (!trains(rank)) return {};
  Entries all;
  if (gradient(rank, parameter).defined) append(all, entries(rank, parameter));
  for (const std::uint32_t copy : copies_[parameter])
    if (gradient(rank, copy).defined) append(all, entries(rank, copy));
  return coalesced(program_.parameters[parameter], all);
}

std::uint64_t Model::most_rows(const ExpectedBucket& bucket) {
  std::size_t most = 0;
  for (const std::uint32_t rank : survivors_)
    most = std::max(most, rows_of(rank, bucket.parameters[0]).size());
  return most;
}

// S1: the rows of all ranks, each scaled, in the order of the ranks.
void Model::reduce_sparse(std::uint32_t parameter) {
  const Parameter& record = program_.parameters[parameter];
  const double factor = scale_factor(record.dtype, divisor());
  Entries all;
  bool any_loose = false;
  for (const std::uint32_t rank : survivors_) {
    Entries own = entries_of(rows_of(rank, parameter));
    scale_values(record.dtype, own.values.data(), own.values.data(), factor, own.values.size());
    append(all, own);
    any_loose = any_loose || (trains(rank) && is_loose(rank, parameter));
  }
  const Entries sum = entries_of(coalesced(record, all));
  for (const std::uint32_t rank : survivors_) entries(rank, parameter) = sum;
  set_reduced(parameter, any_loose);
}

// G1, G2, G3. The additions of a run are carried out for the part of the run that lies in the
// parameter; padding is zeros and stays zeros. A hook scales as G2 says, and sums in its wire type
// (S4): every value of that is one of the parameter's dtype, too.
void Model::reduce_one(std::uint32_t parameter) {
  const DType dtype = program_.parameters[parameter].dtype;
  const DType wire = wire_dtype(program_.options.hook, dtype);
  const ParameterMemory::Place& place = memory_.places[parameter];
  const std::size_t ranks = survivors_.size();
  if (contributions_.size() < ranks * place.count) contributions_.resize(ranks * place.count);
  const double factor = scale_factor(dtype, divisor());
  for (std::size_t i = 0; i < ranks; ++i) {
    double* scaled = contributions_.data() + i * place.count;
    if (trains(survivors_[i]) && is_defined(survivors_[i], parameter)) {
      fold(survivors_[i], parameter, scaled);
      scale_values(dtype, scaled, scaled, factor, place.count);
      for (std::size_t e = 0; wire != dtype && e < place.count; ++e)
        scaled[e] = nearest(wire, scaled[e]);
    } else {
      std::fill_n(scaled, place.count, 0.0);
    }
  }
  std::size_t begin = 0;
  for (const OrderRun& run : orders_[place.bucket]) {
    if (run.end <= place.offset + begin) continue;
    if (begin == place.count) break;
    const std::size_t end = std::min<std::size_t>(place.count, run.end - place.offset);
    double* first = contributions_.data() + begin;
    for (std::size_t i = 0; i + 1 < ranks; ++i) {
      const Addition& addition = run.additions[i];
      add_values(wire, first + addition.into * place.count, first + addition.from * place.count,
                 end - begin);
    }
    for (const std::uint32_t rank : survivors_) {
      std::copy_n(first + run.result * place.count, end - begin, elements(rank, parameter) + begin);
    }
    begin = end;
  }
  assert(begin == place.count);
  set_reduced(parameter, std::any_of(active_.begin(), active_.end(), [&](std::uint32_t rank) {
                return is_loose(rank, parameter);
              }));
}

bool Model::is_power_sgd(const ExpectedBucket& bucket) const {
  return program_.options.hook == Hook::kPowerSgd && !bucket.sparse &&
         power_sgd_.second_count(bucket) > 0;
}

// S4. What no rank used takes part, too: a hook does not know.
void Model::reduce_by_power_sgd(const ExpectedBucket& bucket) {
  std::vector<std::vector<PowerSgd::Floats>> given(survivors_.size());
  for (const std::uint32_t parameter : bucket.parameters)  // nothing is kept of the others
    if (power_matrix(program_.parameters[parameter]).factors == 0) is_power_loose_[parameter] = 0;
  for (std::size_t i = 0; i < survivors_.size(); ++i) {
    for (const std::uint32_t parameter : bucket.parameters) {
      PowerSgd::Floats& values = given[i].emplace_back(memory_.places[parameter].count, 0.0);
      if (!trains(survivors_[i]) || !is_defined(survivors_[i], parameter)) continue;
      fold(survivors_[i], parameter, values.data());
      if (is_loose(survivors_[i], parameter)) is_power_loose_[parameter] = 1;
    }
  }
  const auto sum = [this](std::vector<PowerSgd::Floats> parts) {
    PowerSgd::Floats out;
    for (const OrderRun& run : order_of(parts[0].size(), DType::kFloat32)) {
      const std::size_t begin = out.size();
      for (std::size_t i = 0; i + 1 < parts.size(); ++i)
        add_values(DType::kFloat32, parts[run.additions[i].into].data() + begin,
                   parts[run.additions[i].from].data() + begin, run.end - begin);
      const double* result = parts[run.result].data();
      out.insert(out.end(), result + begin, result + run.end);
    }
    return out;
  };
  const auto results = power_sgd_.reduce(bucket, survivors_, divisor(), given, sum);
  for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
    const std::uint32_t parameter = bucket.parameters[m];
    if (!is_reduced(parameter)) continue;
    for (const std::uint32_t rank : survivors_)
      std::copy(results[m].begin(), results[m].end(), elements(rank, parameter));
    set_reduced(parameter, is_power_loose_[parameter] != 0);
  }
}

// All ranks have the same bits: they are written once.
void Model::set_reduced(std::uint32_t parameter, bool is_loose) {
  Gradient reduced;
  reduced.defined = true;
  reduced.touched = true;
  reduced.reduced = true;
  reduced.recorded = true;
  reduced.in_bucket = program_.options.views && !is_sparse(parameter);
  reduced.loose = is_loose;
  reduced.offset = record_bits(survivors_.front(), parameter);
  Gradient cleared;  // P15
  cleared.touched = true;
  for (const std::uint32_t rank : survivors_) {
    gradient(rank, parameter) = reduced;
    for (const std::uint32_t copy : copies_[parameter]) gradient(rank, copy) = cleared;
  }
}

// What every survivor has after the step. A gradient that has kept its bits since an earlier step
// is not written again.
void Model::record(std::vector<ExpectedRankStep>& ranks) {
  for (const std::uint32_t rank : survivors_) {
    states_.record(rank, ranks[rank].state);
    for (std::uint32_t i = 0; i < memory_.owners.size(); ++i) {
      if (memory_.owners[i] == kNotTrained) continue;
      Gradient& actual = gradient(rank, memory_.owners[i]);
      if (actual.defined && !actual.recorded) {
        actual.offset = record_bits(rank, memory_.owners[i]);
        actual.recorded = true;
      }
      ExpectedGradient& written = ranks[rank].gradients[i];
      written.known = !is_unknown_[memory_.owners[i]] && !actual.loose;
      written.defined = actual.defined;
      const bool is_moved = is_rebuilding_ && actual.in_bucket;
      written.untouched = actual.defined && !actual.touched && !actual.misplaced && !is_moved;
      written.reduced = actual.reduced;
      written.in_bucket = actual.in_bucket;
      written.offset = actual.offset;
    }
  }
}

// Appends a gradient to the expectation, and says where it is.
std::uint64_t Model::record_bits(std::uint32_t rank, std::uint32_t parameter) {
  if (!is_sparse(parameter))
    return memory_.append_bits(parameter, elements(rank, parameter), out_.bits);
  return append_bits(program_.parameters[parameter], entries(rank, parameter), out_.bits);
}

}  // namespace lockstep::reference
