#include "reducer/diagnosis/diagnosis.h"

#include <algorithm>

namespace lockstep {

std::string rank_list(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;  // two of them are no range
    out += (i == 0 ? "" : " ") + std::to_string(ranks[i]);
    if (last != i) out += "-" + std::to_string(ranks[last]);
    i = last;
  }
  return out;
}

namespace {

using Side = Diagnosis::Side;

std::vector<Side> sides_at(const std::vector<Account>& accounts, std::int64_t sequence) {
  std::vector<Side> sides;
  for (const Account& account : accounts) {
    const AccountedCollective* here = account.find(sequence);
    const auto same = [here](const Side& side) {
      if (here == nullptr || !side.collective) return here == nullptr && !side.collective;
      return here->same_as(*side.collective);
    };
    auto side = std::find_if(sides.begin(), sides.end(), same);
    if (side == sides.end()) side = sides.insert(sides.end(), Side{});
    side->ranks.push_back(account.rank);
    if (here != nullptr) side->collective = *here;
  }
  std::stable_sort(sides.begin(), sides.end(),
                   [](const Side& a, const Side& b) { return a.ranks.size() > b.ranks.size(); });
  return sides;
}

// The first sequence number, among those that all ranks still remember, at which they differ.
std::optional<Diagnosis::Difference> first_difference(const std::vector<Account>& accounts) {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  for (const Account& account : accounts) {
    const auto kept = static_cast<std::int64_t>(account.collectives.size());
    begin = std::max(begin, account.next_sequence - kept);
    end = std::max(end, account.next_sequence);
  }
  for (std::int64_t s = begin; s < end; ++s)
    if (std::vector<Side> sides = sides_at(accounts, s); sides.size() > 1)
      return Diagnosis::Difference{s, std::move(sides)};
  return std::nullopt;
}

// Of sides of one size the one to name: the one that is in the latest pass, if there is only one.
const Side* furthest(const std::vector<Side>& sides) {
  const auto pass = [](const Side& side) { return side.collective->pass; };
  const Side* best = &sides[0];
  for (const Side& side : sides)
    if (pass(side) > pass(*best)) best = &side;
  const auto as_far = std::count_if(sides.begin(), sides.end(),
                                    [&](const Side& side) { return pass(side) == pass(*best); });
  return as_far == 1 ? best : nullptr;
}

void add(std::vector<int>& ranks, const std::vector<int>& more) {
  ranks.insert(ranks.end(), more.begin(), more.end());
  std::sort(ranks.begin(), ranks.end());
}

// Different collectives under one number. Those that have not come to it say nothing here.
void judge_difference(Diagnosis& diagnosis) {
  std::vector<Side> started;
  for (const Side& side : diagnosis.difference->sides)
    if (side.collective) started.push_back(side);
  if (started.size() < 2) return;
  const std::string number = "#" + std::to_string(diagnosis.difference->sequence);
  if (started[0].ranks.size() > started[1].ranks.size()) {
    for (std::size_t i = 1; i < started.size(); ++i) add(diagnosis.odd, started[i].ranks);
    diagnosis.reason = "its collective " + number + " is another one than that of most ranks";
    return;
  }
  const Side* further = furthest(started);
  if (further == nullptr) return;
  diagnosis.odd = further->ranks;
  diagnosis.reason = "went on to pass " + std::to_string(further->collective->pass) +
                     " without the collective " + number + " of others";
}

// The first failure that a rank says is its own.
void judge_failures(Diagnosis& diagnosis) {
  const Failure* first = nullptr;
  for (const Account& account : diagnosis.accounts) {
    if (!account.failure || !account.failure->definite) continue;
    if (account.failure->code == Code::kMismatch) continue;  // takes two, and both see it
    if (account.failure->rank < 0 || account.failure->rank >= diagnosis.size) continue;
    if (first == nullptr || account.failure->pass < first->pass) first = &*account.failure;
  }
  if (first == nullptr) return;
  const bool is_received =
      first->code == Code::kCorrupted && first->suspect >= 0 && first->suspect < diagnosis.size;
  if (is_received) {  // F3: who sent it, not who looked
    diagnosis.odd = {first->suspect};
    diagnosis.reason =
        "what rank " + std::to_string(first->rank) + " received from it was corrupted";
    return;
  }
  diagnosis.odd = {first->rank};
  diagnosis.reason = "failed by itself: " + std::string(name_of(first->code));
}

// A collective failed that all had come to, before ranks differ: who had not gone on by then was
// held up in it, or has heard of it.
bool has_failed_before(const Diagnosis& diagnosis) {
  using State = AccountedCollective::State;
  const auto has_failed = [&](const Account& account) {
    // Nobody has waited for it yet where the next one was refused.
    const auto is_named = [&](const AccountedCollective& c) {
      return c.state == State::kInFlight && account.failure && c.bucket != kNone &&
             c.bucket == account.failure->bucket && c.pass == account.failure->pass;
    };
    return std::any_of(account.collectives.begin(), account.collectives.end(), [&](const auto& c) {
      return c.sequence < diagnosis.difference->sequence &&
             (c.state == State::kFailed || is_named(c));
    });
  };
  return std::any_of(diagnosis.accounts.begin(), diagnosis.accounts.end(), has_failed);
}

// Some have started a collective, the others have not come to it.
void judge_progress(Diagnosis& diagnosis) {
  if (!diagnosis.difference || diagnosis.difference->sides.size() != 2) return;
  const std::vector<Side>& sides = diagnosis.difference->sides;
  if (sides[0].collective && sides[1].collective) return;
  if (has_failed_before(diagnosis)) return;
  const bool is_first_behind = !sides[0].collective;
  const Side& behind = is_first_behind ? sides[0] : sides[1];
  const Side& ahead = is_first_behind ? sides[1] : sides[0];
  const std::string number = "#" + std::to_string(diagnosis.difference->sequence);
  if (behind.ranks.size() > ahead.ranks.size()) {
    diagnosis.odd = ahead.ranks;
    diagnosis.reason = "started the collective " + number + ", which most ranks have not";
  } else {
    diagnosis.odd = behind.ranks;
    diagnosis.reason = "has not started the collective " + number + " that the others wait in";
  }
}

bool has_failed(const Diagnosis& diagnosis) {
  return std::any_of(diagnosis.accounts.begin(), diagnosis.accounts.end(),
                     [](const Account& account) { return account.failure.has_value(); });
}

void find_odd(Diagnosis& diagnosis) {
  if (diagnosis.difference) judge_difference(diagnosis);
  if (diagnosis.odd.empty()) judge_failures(diagnosis);
  if (diagnosis.odd.empty() && !diagnosis.silent.empty()) {
    diagnosis.odd = diagnosis.silent;
    diagnosis.reason = "told nothing: it died, stands still, or has not met the failure yet";
  }
  if (diagnosis.odd.empty()) judge_progress(diagnosis);
}

void find_waits(Diagnosis& diagnosis) {
  for (const Account& account : diagnosis.accounts) {
    const auto open = std::find_if(
        account.collectives.begin(), account.collectives.end(),
        [](const auto& c) { return c.state != AccountedCollective::State::kCompleted; });
    if (open == account.collectives.end()) continue;
    Diagnosis::Wait wait{account.rank, open->sequence, diagnosis.silent};
    for (const Account& other : diagnosis.accounts) {
      const bool forgotten = other.find(open->sequence) == nullptr &&
                             open->sequence < other.next_sequence;  // it was there, long ago
      if (forgotten) continue;
      const AccountedCollective* there = other.find(open->sequence);
      if (there == nullptr || !there->same_as(*open)) wait.ranks.push_back(other.rank);
    }
    std::sort(wait.ranks.begin(), wait.ranks.end());
    diagnosis.waits.push_back(std::move(wait));
  }
}

std::string describe(const Account& account) {
  std::string out = "pass " + std::to_string(account.pass) + ", " + name_of(account.doing);
  if (account.next_bucket != kNone) {
    out += "; its next bucket, " + std::to_string(account.next_bucket);
    out += account.missing.empty() ? ", is complete" : ", lacks " + account.missing.to_string();
  }
  return out;
}

void tell_ranks(const Diagnosis& diagnosis, std::string& out) {
  for (const Account& account : diagnosis.accounts) {
    const std::string rank = "  rank " + std::to_string(account.rank) + ": ";
    out += rank + describe(account) + "\n";
    for (const Diagnosis::Wait& wait : diagnosis.waits) {
      if (wait.rank != account.rank) continue;
      out += rank + "waits in #" + std::to_string(wait.sequence);
      out += wait.ranks.empty() ? ", in which all are" : " for " + rank_list(wait.ranks);
      out += "\n";
    }
    if (account.failure) out += rank + account.failure->to_string() + "\n";
  }
  if (!diagnosis.silent.empty()) out += "  " + rank_list(diagnosis.silent) + ": told nothing\n";
}

constexpr std::int64_t kRowsBefore = 4;
constexpr std::int64_t kRows = 12;

std::string cell(const Account& account, std::int64_t sequence) {
  const AccountedCollective* c = account.find(sequence);
  if (c == nullptr) return "-";
  std::string out = "pass " + std::to_string(c->pass) + " ";
  out += c->what == AccountedCollective::What::kBucket ? "bucket " + std::to_string(c->bucket)
                                                       : name_of(c->what);
  return out + ", " + std::to_string(c->count) + " " + lockstep::name_of(c->dtype) + ", " +
         name_of(c->state);
}

// Ranks whose rows are the same share a column.
struct Column {
  std::vector<int> ranks;
  std::vector<std::string> cells;
};

void tell_side_by_side(const Diagnosis& diagnosis, std::string& out) {
  std::int64_t end = 0;
  for (const Account& account : diagnosis.accounts) end = std::max(end, account.next_sequence);
  std::int64_t begin = end - kRows;
  if (diagnosis.difference) begin = diagnosis.difference->sequence - kRowsBefore;
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min(end, begin + kRows);
  if (begin >= end) return;
  std::vector<Column> columns;
  for (const Account& account : diagnosis.accounts) {
    std::vector<std::string> cells;
    for (std::int64_t s = begin; s < end; ++s) cells.push_back(cell(account, s));
    auto same = std::find_if(columns.begin(), columns.end(),
                             [&](const Column& column) { return column.cells == cells; });
    if (same == columns.end()) same = columns.insert(columns.end(), Column{{}, cells});
    same->ranks.push_back(account.rank);
  }
  std::vector<std::string> lines(static_cast<std::size_t>(end - begin) + 1, "  #");
  for (std::int64_t s = begin; s < end; ++s)
    lines[static_cast<std::size_t>(s - begin) + 1] = "  " + std::to_string(s);
  const auto pad = [&lines] {
    std::size_t width = 0;
    for (const std::string& line : lines) width = std::max(width, line.size());
    for (std::string& line : lines) line.resize(width + 2, ' ');
  };
  for (const Column& column : columns) {
    pad();
    lines[0] += rank_list(column.ranks);
    for (std::size_t i = 0; i < column.cells.size(); ++i) lines[i + 1] += column.cells[i];
  }
  out += "the collectives, side by side:\n";
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
}

Status check_group(const std::vector<Account>& accounts) {
  if (accounts.empty()) return Status(Code::kInvalidArgument, "there is no account of any rank");
  for (std::size_t i = 0; i < accounts.size(); ++i) {
    const Account& account = accounts[i];
    if (account.size != accounts[0].size)
      return Status(Code::kInvalidArgument, "the accounts are of different groups: rank " +
                                                std::to_string(accounts[0].rank) + " is one of " +
                                                std::to_string(accounts[0].size) + " ranks, rank " +
                                                std::to_string(account.rank) + " one of " +
                                                std::to_string(account.size));
    if (account.source != accounts[0].source)
      return Status(Code::kInvalidArgument, "the accounts are of different reducers on one group");
    if (i > 0 && account.rank == accounts[i - 1].rank)
      return Status(Code::kInvalidArgument,
                    "there are two accounts of rank " + std::to_string(account.rank));
  }
  return {};
}

}  // namespace

bool Diagnosis::clean() const {
  return odd.empty() && silent.empty() && waits.empty() && !difference && !has_failed(*this);
}

std::string Diagnosis::to_string() const {
  const std::string all = std::to_string(size) + (size == 1 ? " rank" : " ranks");
  if (clean()) return all + ": nothing differs, nobody waits, nothing failed\n";
  std::string out = all + ", ";
  out +=
      odd.empty() ? "no odd one\n" : "the odd one out: " + rank_list(odd) + " (" + reason + ")\n";
  if (difference) {
    out += "the first difference is in collective #" + std::to_string(difference->sequence) + ":\n";
    for (const Side& side : difference->sides)
      out += "  " + rank_list(side.ranks) + ": " +
             (side.collective ? side.collective->to_string() : "not started") + "\n";
  } else {
    out += "the ranks that told started the same collectives\n";
  }
  out += "where each rank is:\n";
  tell_ranks(*this, out);
  tell_side_by_side(*this, out);
  return out;
}

Result<Diagnosis> diagnose(std::vector<Account> accounts) {
  std::sort(accounts.begin(), accounts.end(),
            [](const Account& a, const Account& b) { return a.rank < b.rank; });
  if (Status status = check_group(accounts); !status.ok()) return failed(std::move(status));
  Diagnosis diagnosis;
  diagnosis.size = accounts[0].size;
  std::size_t at = 0;
  for (int rank = 0; rank < diagnosis.size; ++rank) {
    if (at < accounts.size() && accounts[at].rank == rank)
      ++at;
    else
      diagnosis.silent.push_back(rank);
  }
  diagnosis.accounts = std::move(accounts);
  diagnosis.difference = first_difference(diagnosis.accounts);
  find_odd(diagnosis);
  find_waits(diagnosis);
  return diagnosis;
}

}  // namespace lockstep
