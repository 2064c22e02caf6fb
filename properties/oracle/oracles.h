// The single oracles behind judge(). Each returns an ok Verdict, or the first failure that it
// finds.
#pragma once

#include "properties/oracle/judge.h"
#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::properties {

// Judges whether the run proves anything.
Verdict judge_proof(const Observation& observation);
Verdict judge_end(const Observation& observation);
Verdict judge_errors(const Case& c, const reference::Expectation& expectation,
                     const Observation& observation);
Verdict judge_error_calls(const Case& c, const torch_model::Policies& policies,
                          const Expected& expectation, const Observation& observation);
// Judges the texts of the errors of steps (F2).
Verdict judge_texts(const Case& c, const reference::Expectation& expectation,
                    const Observation& observation);
// Judges the errors of constructions and resets that a later attempt made good.
Verdict judge_attempts(const Case& c, const Observation& observation);
// Those with `counts` add what they cannot judge.
Verdict judge_gradients(const Case& c, const reference::Expectation& expectation,
                        const Observation& observation, UnspecifiedCounts& counts);
// Judges alone whether the ranks hold the same bits where they must, which needs no right bits.
Verdict judge_equal_ranks(const Case& c, const reference::Expectation& expectation,
                          const Observation& observation);
Verdict judge_rebuild(const Case& c, const reference::Expectation& expectation,
                      const Observation& observation, UnspecifiedCounts& counts);
Verdict judge_state(const Case& c, const reference::Expectation& expectation,
                    const Observation& observation);
Verdict judge_trace(const Case& c, const Expected& expectation, const Observation& observation,
                    UnspecifiedCounts& counts);
// Judges when buckets are launched (P3).
Verdict judge_overlap(const Case& c, const reference::Expectation& expectation,
                      const Observation& observation, UnspecifiedCounts& counts);
// Whether a rank may stand still while it copies a gradient, so that its bucket is ready later.
bool may_pause(const Case& c);
// Judges what a subject says about the times of its passes (T3).
Verdict judge_pass_times(const Case& c, const reference::Expectation& expectation,
                         const Observation& observation);
// Judges the padding between the members of the buckets that were sent (B3).
Verdict judge_padding(const Observation& observation);
// Judge T1 and F6: all flight records, and the diagnosis that is joined from the records of one
// group in one generation.
Verdict judge_diagnosis(const Case& c, const reference::Expectation& expectation,
                        const Observation& observation, UnspecifiedCounts& counts);
Verdict judge_diagnosis(const Case& c, const reference::Expectation& expectation,
                        const Observation& observation, std::uint32_t generation,
                        std::uint32_t group, const Diagnosis& diagnosis, UnspecifiedCounts& counts);
// Describe a word of a gradient (reference::gradient_words) for a person: its value, and which word
// it is.
std::string show_word(const reference::Parameter& parameter, std::uint64_t bits, std::uint64_t e);
std::string name_of_word(const reference::Parameter& parameter, std::uint64_t e);
Verdict judge_races(const Observation& observation);
// Judges what the lane asked besides: who recovers (F9), and calls that a group must refuse.
Verdict judge_answers(const Observation& observation);
Verdict judge_refusals(const Case& c, const Observation& observation);
Verdict judge_leaks(const Observation& observation);

}  // namespace lockstep::properties
