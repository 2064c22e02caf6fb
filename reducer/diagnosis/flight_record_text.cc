// Writes a FlightRecord as lines of words, and reads it back.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>

#include "reducer/base/check.h"
#include "reducer/diagnosis/flight_record.h"

namespace lockstep {
namespace {

constexpr std::string_view kTitle = "lockstep-flight-record";
// The word that 0.1.0 wrote in its place. The rest of the text is the same.
constexpr std::string_view kTitleBefore = "lockstep-account";
constexpr int kVersion = 2;                 // Version 1, of 0.1.0, had no line 'number'.
constexpr std::string_view kNothing = "-";  // Stands for an empty text.
constexpr int kMaxRanks = 1 << 20;          // A group with more ranks means a broken file.
// So does a larger number of a collective. Sums of such numbers do not overflow.
constexpr std::int64_t kMaxSequence = std::int64_t{1} << 62;
constexpr std::size_t kQuoted = 60;  // of a line that is wrong, in bytes

char digit(unsigned value) { return "0123456789abcdef"[value & 15u]; }

constexpr auto is_plain = [](char c) { return c > 0x20 && c < 0x7f && c != '%'; };

void append_escaped(std::string_view text, std::string& out) {
  const std::size_t before = out.size();
  if (text.empty()) out += kNothing;
  if (text == kNothing) {
    out += "%2d";
    return;
  }
  while (!text.empty()) {
    const auto end = std::find_if_not(text.begin(), text.end(), is_plain);
    out.append(text.begin(), end);
    text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
    if (text.empty()) break;
    const auto byte = static_cast<unsigned char>(text.front());
    out.append({'%', digit(byte >> 4), digit(byte)});
    text.remove_prefix(1);
  }
  LOCKSTEP_CHECK_LT(before, out.size());  // A word is never empty.
}

class Line {
 public:
  Line(std::string& out, std::string_view keyword) : out_(out) { out_ += keyword; }
  ~Line() { out_ += '\n'; }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  Line& text(std::string_view text) {
    out_ += ' ';
    append_escaped(text, out_);
    return *this;
  }
  Line& number(std::int64_t value) {
    char digits[24];
    digits[0] = ' ';
    out_.append(digits, std::to_chars(digits + 1, std::end(digits), value).ptr);
    return *this;
  }
  Line& names(const Names& names) {
    number(static_cast<std::int64_t>(names.count));
    for (const std::string& name : names.first) text(name);
    return *this;
  }

 private:
  std::string& out_;
};

// Takes the words of a line one after the other; after the first wrong word it ignores the rest.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  std::string_view raw() {
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    require(!word.empty(), word);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }
  std::string text() {
    const std::string_view word = raw();
    std::string out;
    if (word == kNothing) return out;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (word[i] != '%') {
        out += word[i];
        continue;
      }
      unsigned byte = 0;
      const std::string_view digits = word.substr(i + 1, 2);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      require(digits.size() == 2 && error == std::errc() && end == digits.end(), word);
      out += static_cast<char>(byte);
      i += 2;
    }
    return out;
  }
  template <class T>
  void number(T& value) {
    const std::string_view word = raw();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    require(error == std::errc() && end == word.data() + word.size(), word);
  }
  // A word of letters and digits alone.
  std::string plain() {
    const std::string_view word = raw();
    require(std::all_of(word.begin(), word.end(),
                        [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }),
            word);
    return std::string(word);
  }
  // Sets the value, among the first `count` of an enumeration, that has this name.
  template <class E>
  void named(E& value, int count) {
    LOCKSTEP_CHECK_LT(0, count);
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    const std::string name = text();
    bool known = false;
    for (int i = 0; i < count && !known; ++i) {
      value = static_cast<E>(i);
      known = name == name_of(value);
    }
    require(known, word);
  }
  void names(Names& names) {
    number(names.count);
    while (good_ && !rest_.empty() && names.first.size() < Names::kKept)
      names.first.push_back(text());
    good_ = good_ &&
            names.first.size() == std::min<std::uint64_t>(names.count, std::uint64_t{Names::kKept});
  }
  bool good() const { return good_ && rest_.empty(); }  // Call it after the last word.
  // The first word that is not what belongs there; empty if no word is to blame.
  std::string_view wrong_word() const { return wrong_word_; }

 private:
  void require(bool is_met, std::string_view word) {
    if (good_ && !is_met) wrong_word_ = word;
    good_ = good_ && is_met;
  }

  std::string_view rest_;
  std::string_view wrong_word_;
  bool good_ = true;
};

void write(std::string& out, const RecordedCollective& c) {
  // Otherwise nobody could read the record: see is_possible().
  LOCKSTEP_CHECK_GE(c.sequence, 0);
  LOCKSTEP_CHECK_GE(c.pass, kNone);
  LOCKSTEP_CHECK_GE(c.bucket, kNone);
  LOCKSTEP_CHECK_GE(c.count, 0);
  Line(out, "collective")
      .number(c.sequence)
      .number(c.pass)
      .text(name_of(c.what))
      .text(c.op)
      .number(c.bucket)
      .number(c.count)
      .text(c.dtype)
      .text(name_of(c.state))
      .number(c.launched_us)
      .number(c.completed_us)
      .text(std::to_string(c.layout_hash))
      .names(c.parameters);
  if (c.number != kNone) Line(out, "number").number(c.number);
}

void read(Words& words, RecordedCollective& c) {
  words.number(c.sequence);
  words.number(c.pass);
  words.named(c.what, static_cast<int>(RecordedCollective::What::kJoin) + 1);
  c.op = words.text();
  words.number(c.bucket);
  words.number(c.count);
  c.dtype = words.plain();
  words.named(c.state, static_cast<int>(RecordedCollective::State::kFailed) + 1);
  words.number(c.launched_us);
  words.number(c.completed_us);
  words.number(c.layout_hash);
  words.names(c.parameters);
}

void write(std::string& out, const Failure& f) {
  Line(out, "failure")
      .text(name_of(f.code))
      .number(f.rank)
      .number(f.reported_by)
      .number(f.pass)
      .number(f.bucket)
      .number(f.sequence)
      .number(f.suspect)
      .number(f.definite ? 1 : 0)
      .text(f.collective)
      .text(f.detail);
  Names parameters;
  for (const std::string& name : f.parameters) parameters.add(name);
  Line(out, "failure-parameters").names(parameters);
  for (const std::string& line : f.later) Line(out, "failure-later").text(line);
}

void read(Words& words, Failure& f) {
  int definite = 0;
  words.named(f.code, static_cast<int>(Code::kInternal) + 1);
  words.number(f.rank);
  words.number(f.reported_by);
  words.number(f.pass);
  words.number(f.bucket);
  words.number(f.sequence);
  words.number(f.suspect);
  words.number(definite);
  f.definite = definite != 0;
  f.collective = words.text();
  f.detail = words.text();
}

// Reads one line after the title. Returns false if the line is wrong.
bool read_line(std::string_view line, FlightRecord& record, bool& ended,
               std::string_view& wrong_word) {
  LOCKSTEP_CHECK(!ended);
  Words words(line);
  const std::string_view keyword = words.raw();
  if (keyword == "rank") {
    words.number(record.rank);
    words.number(record.size);
  } else if (keyword == "source") {
    words.number(record.reducer_id);
  } else if (keyword == "pass") {
    words.number(record.pass);
    words.named(record.doing, static_cast<int>(FlightRecord::Doing::kFinishing) + 1);
  } else if (keyword == "next-bucket") {
    words.number(record.next_bucket);
    words.names(record.missing);
  } else if (keyword == "failure") {
    read(words, record.failure.emplace());
  } else if (keyword == "failure-parameters" && record.failure) {
    Names names;
    words.names(names);
    record.failure->parameters = std::move(names.first);
  } else if (keyword == "failure-later" && record.failure) {
    record.failure->later.push_back(words.text());
  } else if (keyword == "collective") {
    const std::int64_t due =
        record.collectives.empty() ? kNone : record.collectives.back().sequence + 1;
    read(words, record.collectives.emplace_back());
    if (record.collectives.back().sequence > kMaxSequence) return false;
    if (due != kNone && record.collectives.back().sequence != due) return false;
  } else if (keyword == "number" && !record.collectives.empty()) {
    words.number(record.collectives.back().number);
    if (record.collectives.back().number > kMaxSequence) return false;
  } else if (keyword == "end") {
    words.number(record.next_sequence);
    ended = true;
  } else {
    return false;
  }
  wrong_word = words.wrong_word();
  return words.good();
}

// Whether a rank can have written this record.
bool is_possible(const FlightRecord& record) {
  if (record.rank < 0 || record.rank >= record.size || record.size > kMaxRanks) return false;
  if (record.next_sequence < 0 || record.pass < kNone || record.next_bucket < kNone) return false;
  if (record.failure && !lockstep::is_possible(*record.failure, record.size)) return false;
  for (const RecordedCollective& c : record.collectives)
    if (c.sequence < 0 || c.number < kNone || c.pass < kNone || c.bucket < kNone || c.count < 0)
      return false;
  return record.collectives.empty() ||
         record.collectives.back().sequence + 1 == record.next_sequence;
}

Status invalid(std::string detail) { return Status(Code::kInvalidArgument, std::move(detail)); }

}  // namespace

std::string quoted(std::string_view text, std::size_t longest) {
  std::string out = "'";
  for (const char each : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte >= ' ' && byte <= '~')
      out += each;
    else
      out += {'%', digit(byte >> 4), digit(byte)};
  }
  return out + (text.size() > longest ? "...'" : "'");
}

std::string to_text(const FlightRecord& record) {
  LOCKSTEP_CHECK_GE(record.rank, 0);
  LOCKSTEP_CHECK_LT(record.rank, record.size);
  LOCKSTEP_CHECK(record.collectives.empty() ||
                 record.collectives.back().sequence + 1 == record.next_sequence);
  std::string out;
  out.reserve(2048);  // some forty lines
  Line(out, kTitle).number(kVersion);
  Line(out, "rank").number(record.rank).number(record.size);
  if (record.reducer_id != 0) Line(out, "source").number(record.reducer_id);
  Line(out, "pass").number(record.pass).text(name_of(record.doing));
  if (record.next_bucket != kNone)
    Line(out, "next-bucket").number(record.next_bucket).names(record.missing);
  if (record.failure) write(out, *record.failure);
  for (const RecordedCollective& collective : record.collectives) write(out, collective);
  Line(out, "end").number(record.next_sequence);
  return out;
}

Result<FlightRecord> read_flight_record(std::string_view text) {
  FlightRecord record;
  bool ended = false;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (number == 1) {
      Words words(line);
      int version = 0;
      const std::string_view title = words.raw();
      words.number(version);
      if ((title != kTitle && title != kTitleBefore) || !words.good())
        return failed(invalid("it is no flight record of a rank: its first line is not '" +
                              std::string(kTitle) + " " + std::to_string(kVersion) + "'"));
      if (version < 1 || version > kVersion)
        return failed(invalid("it is a flight record of version " + std::to_string(version) +
                              ", and this is made for version " + std::to_string(kVersion)));
      continue;
    }
    std::string_view wrong_word;
    if (ended || !read_line(line, record, ended, wrong_word)) {
      const std::string at = "line " + std::to_string(number) + " is wrong";
      return failed(invalid(wrong_word.empty()
                                ? at + ": " + quoted(line, kQuoted)
                                : at + " at the word " + quoted(wrong_word, kQuoted)));
    }
  }
  if (!ended) return failed(invalid("the flight record ends before its last line, 'end'"));
  if (!is_possible(record)) return failed(invalid("its numbers do not fit together"));
  return record;
}

}  // namespace lockstep
