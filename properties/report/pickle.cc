#include "properties/report/pickle.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::properties {
namespace {

using PlainJson = nlohmann::json;

constexpr int kFirstBinaryProtocol = 2;
constexpr int kLastProtocol = 5;
constexpr std::size_t kLongestInteger = 8;  // in bytes

// A virtual machine with a stack, as Python's, of which only the instructions that make plain data
// are there.
class PickleMachine {
 public:
  explicit PickleMachine(std::string_view bytes) : left_(bytes), all_(bytes.size()) {}

  Result<PlainJson> run() {
    while (wrong_.empty()) {
      const std::optional<std::uint8_t> instruction = byte();
      if (!instruction) break;
      if (*instruction == '.') return end();
      carry_out(static_cast<char>(*instruction));
    }
    return refusal();
  }

 private:
  Result<PlainJson> refusal() const {
    return failed(
        Status(Code::kInvalidArgument, wrong_.empty() ? "the pickle ends too early" : wrong_));
  }
  Result<PlainJson> end() {
    if (stack_.size() == 1 && marks_.empty()) return std::move(stack_.back());
    return failed(Status(Code::kInvalidArgument, "the pickle leaves more or less than one thing"));
  }
  void refuse(std::string why) {
    if (wrong_.empty()) wrong_ = std::move(why);
  }

  std::string_view take(std::size_t count) {
    if (count > left_.size()) {
      refuse("the pickle ends too early");
      return {};
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  std::optional<std::uint8_t> byte() {
    const std::string_view one = take(1);
    if (one.empty()) return std::nullopt;
    return static_cast<std::uint8_t>(one[0]);
  }
  // A number of up to eight bytes, the lowest first.
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t out = 0;
    const std::string_view text = take(bytes);
    for (std::size_t i = 0; i < text.size(); ++i)
      out |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
    return out;
  }

  void push(PlainJson value) {
    if (++parts_ > kMostPickleParts) return refuse("the pickle has too many parts");
    stack_.push_back(std::move(value));
  }
  // What lies above the last mark, which goes.
  std::vector<PlainJson> above_mark() {
    std::vector<PlainJson> out;
    if (marks_.empty() || marks_.back() > stack_.size()) {
      refuse("the pickle has no beginning of a list where it ends one");
      return out;
    }
    for (std::size_t i = marks_.back(); i < stack_.size(); ++i) out.push_back(std::move(stack_[i]));
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  std::vector<PlainJson> top(std::size_t count) {
    std::vector<PlainJson> out;
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < floor + count) {
      refuse("the pickle takes more than there is");
      return out;
    }
    for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i)
      out.push_back(std::move(stack_[i]));
    stack_.resize(stack_.size() - count);
    return out;
  }

  void append(std::vector<PlainJson> values) {
    if (!wrong_.empty()) return;
    if (stack_.empty() || !stack_.back().is_array())
      return refuse("the pickle appends to what is no list");
    for (PlainJson& each : values) stack_.back().push_back(std::move(each));
  }
  void set_items(std::vector<PlainJson> values) {
    if (!wrong_.empty()) return;
    if (stack_.empty() || !stack_.back().is_object() || values.size() % 2 != 0)
      return refuse("the pickle sets keys of what is no dictionary");
    for (std::size_t i = 0; i < values.size(); i += 2) {
      const PlainJson& key = values[i];
      if (!key.is_string() && !key.is_number_integer())
        return refuse("the pickle has a key that is neither a text nor a number");
      stack_.back()[key.is_string() ? key.get<std::string>() : key.dump()] =
          std::move(values[i + 1]);
    }
  }

  // Only what has no parts is remembered: it may be at many places.
  void put(std::uint64_t place) {
    if (stack_.empty()) return refuse("the pickle remembers what is not there");
    if (stack_.back().is_structured())
      memo_.erase(place);
    else
      memo_[place] = stack_.back();
  }
  void get(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end())
      return refuse("the pickle has a list or dictionary at two places, or nothing at one");
    push(found->second);
  }

  void push_text(std::size_t bytes) { push(std::string(take(bytes))); }
  void push_long(std::size_t bytes) {
    if (bytes > kLongestInteger) return refuse("the pickle has a number of more than 64 bits");
    std::uint64_t value = number(bytes);
    const bool is_negative = bytes > 0 && (value >> (8 * bytes - 1) & 1) != 0;
    if (is_negative && bytes < kLongestInteger) value |= ~std::uint64_t{0} << (8 * bytes);
    push(static_cast<std::int64_t>(value));
  }
  void push_double() {
    const std::string_view text = take(8);
    if (text.size() != 8) return;
    std::uint64_t bits = 0;
    for (const char each : text) bits = bits << 8 | static_cast<unsigned char>(each);
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    push(value);
  }

  void carry_out(char instruction) {
    switch (instruction) {
      case '\x80':  // the protocol
        if (const auto protocol = byte();
            protocol && (*protocol < kFirstBinaryProtocol || *protocol > kLastProtocol))
          refuse(fmt::format("the pickle has protocol {}: 2 to 5 are known", *protocol));
        return;
      case '\x95':  // the length of a frame
        (void)take(8);
        return;
      case '(':
        return marks_.push_back(stack_.size());
      case '0':
        (void)top(1);
        return;
      case 'N':
        return push(nullptr);
      case '\x88':
        return push(true);
      case '\x89':
        return push(false);
      case 'K':
        return push(number(1));
      case 'M':
        return push(number(2));
      case 'J':
        return push(static_cast<std::int32_t>(number(4)));
      case '\x8a':
        return push_long(byte().value_or(0));
      case 'G':
        return push_double();
      case 'X':
        return push_text(number(4));
      case '\x8c':
        return push_text(number(1));
      case '\x8d':
        return push_text(number(8));
      case ']':
      case ')':
        return push(PlainJson::array());
      case '}':
        return push(PlainJson::object());
      case 'a':
        return append(top(1));
      case 'e':
        return append(above_mark());
      case 's':
        return set_items(top(2));
      case 'u':
        return set_items(above_mark());
      case 't':
        return push(above_mark());
      case '\x85':
        return push(top(1));
      case '\x86':
        return push(top(2));
      case '\x87':
        return push(top(3));
      case 'q':
        return put(number(1));
      case 'r':
        return put(number(4));
      case '\x94':
        return put(next_memo_++);
      case 'h':
        return get(number(1));
      case 'j':
        return get(number(4));
      default:
        return refuse(
            fmt::format("the pickle is more than plain data: instruction {:#04x} at byte {}, which "
                        "may run code "
                        "in Python; nothing of it was run",
                        static_cast<unsigned char>(instruction), all_ - left_.size() - 1));
    }
  }

  std::string_view left_;
  const std::size_t all_;
  std::vector<PlainJson> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PlainJson> memo_;
  std::uint64_t next_memo_ = 0;
  std::size_t parts_ = 0;
  std::string wrong_;
};

}  // namespace

bool is_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= kFirstBinaryProtocol &&
         bytes[1] <= kLastProtocol;
}

Result<PlainJson> json_of_pickle(std::string_view bytes) { return PickleMachine(bytes).run(); }

}  // namespace lockstep::properties
