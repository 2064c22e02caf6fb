#include "properties/case/case_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "properties/case/fields.h"
#include "properties/case/nearest.h"
#include "properties/case/schema_1.h"
#include "reducer/base/check.h"
#include "reference/exclusions.h"

namespace lockstep::properties {
namespace {

using nlohmann::ordered_json;
constexpr std::size_t kMaxNesting = 64;
constexpr std::size_t kMaxColumns = 100;
constexpr const char* kFoundWith = "found_with";

struct FoundField {
  const char* name;
  std::string FoundWith::*member;
};
constexpr std::array<FoundField, 6> kFoundFields{{{"subject", &FoundWith::subject},
                                                  {"lane", &FoundWith::lane},
                                                  {"against", &FoundWith::against},
                                                  {"contract", &FoundWith::contract},
                                                  {"values", &FoundWith::values},
                                                  {"nccl", &FoundWith::nccl}}};

// --- Writing.

template <typename T>
ordered_json encode(const T& value);

template <typename T>
ordered_json encode(const T& value) {
  if constexpr (fields::IsVector<T>::value) {
    ordered_json out = ordered_json::array();
    for (const auto& element : value) out.push_back(encode(element));
    return out;
  } else if constexpr (fields::IsRecord<T>) {
    const T simplest{};
    ordered_json out = ordered_json::object();
    fields::for_each<T>([&](const auto& field) {
      if (!fields::same(field.get(value), field.get(simplest)))
        out[field.name] = encode(field.get(value));
    });
    return out;
  } else if constexpr (std::is_enum_v<T>) {
    return fields::name_of(value);
  } else {
    return value;
  }
}

// Appends the value on one line, and stops once `out` is longer than `limit`.
void append_line(std::string& out, const ordered_json& value, std::size_t limit) {
  if (!value.is_structured()) {
    out += value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    return;
  }
  out += value.is_array() ? '[' : '{';
  const char* separator = "";
  for (const auto& [name, element] : value.items()) {
    if (out.size() > limit) return;
    out += separator;
    if (value.is_object()) out += '"' + name + "\": ";
    append_line(out, element, limit);
    separator = ", ";
  }
  out += value.is_array() ? ']' : '}';
}

// Prints a value on one line if it fits; otherwise with one element per line.
void print(std::string& out, const ordered_json& value, std::size_t indent, std::size_t used) {
  std::string line;
  append_line(line, value, kMaxColumns);
  if (!value.is_structured() || (used + line.size() < kMaxColumns && indent > 0)) {
    out += line;
    return;
  }
  out += value.is_array() ? '[' : '{';
  const char* separator = "";
  for (const auto& [name, element] : value.items()) {
    out += separator;
    out += '\n' + std::string(indent + 1, ' ');
    std::size_t column = indent + 2;
    if (value.is_object()) {
      out += '"' + name + "\": ";
      column += name.size() + 4;
    }
    print(out, element, indent + 1, column);
    separator = ",";
  }
  out += '\n' + std::string(indent, ' ') + (value.is_array() ? ']' : '}');
}

// --- Reading.

std::string scalar(const ordered_json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Walks the table and the JSON together. The first error remains; nothing more is read after it.
class Decoder {
 public:
  template <typename T>
  void record(const ordered_json& from, T& to, const std::string& path);
  const std::optional<std::string>& error() const { return error_; }

 private:
  template <typename T>
  void value(const ordered_json& from, T& to, const std::string& path,
             const fields::Limits& limits);
  template <typename T>
  void integer(const ordered_json& from, T& to, const std::string& path,
               const fields::Limits& limits);
  template <typename T>
  void word(const ordered_json& from, T& to, const std::string& path);
  template <typename T>
  void list(const ordered_json& from, T& to, const std::string& path, const fields::Limits& limits);
  void check_elements(const std::vector<std::uint32_t>& sizes, const std::string& path);
  template <typename T>
  void unknown_field(const std::string& name, const std::string& path);

  void fail(const std::string& path, const std::string& what) {
    if (!error_) error_ = (path.empty() ? "the case" : path) + ": " + what;
  }
  void wrong_type(const ordered_json& from, const std::string& path, const std::string& expected) {
    std::string found = scalar(from);
    if (found.size() > 40) found = found.substr(0, 37) + "...";
    fail(path, fmt::format("expected {}, found {}", expected, found));
  }

  std::optional<std::string> error_;
};

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

template <typename T>
void Decoder::unknown_field(const std::string& name, const std::string& path) {
  std::vector<std::string> known;
  fields::for_each<T>([&](const auto& field) { known.emplace_back(field.name); });
  fail(join(path, name), fmt::format("unknown field; {}", suggestion(name, known)));
}

template <typename T>
void Decoder::record(const ordered_json& from, T& to, const std::string& path) {
  if (!from.is_object()) return wrong_type(from, path, "an object {...}");
  for (auto item = from.begin(); item != from.end(); ++item) {
    if (error_) return;
    const std::string& name = item.key();
    const ordered_json& element = *item;
    if (path.empty() && (name == "schema" || name == "about" || name == kFoundWith)) continue;
    bool known = false;
    fields::for_each<T>([&](const auto& field) {
      if (name != field.name) return;
      known = true;
      value(element, field.get(to), join(path, name), field.limits);
    });
    if (!known) unknown_field<T>(name, path);
  }
  if constexpr (requires { to.sizes; }) check_elements(to.sizes, join(path, "sizes"));
}

// Checks the product of the dimensions: each may be within its limits while the product is not.
void Decoder::check_elements(const std::vector<std::uint32_t>& sizes, const std::string& path) {
  if (error_) return;
  const std::uint64_t count = reference::element_count(sizes);  // at most 4096 to the fourth
  if (count > reference::kMaxElements)
    fail(path, fmt::format("comes to {} elements, at most {} are allowed", count,
                           reference::kMaxElements));
}

template <typename T>
void Decoder::value(const ordered_json& from, T& to, const std::string& path,
                    const fields::Limits& limits) {
  if constexpr (fields::IsVector<T>::value) {
    list(from, to, path, limits);
  } else if constexpr (fields::IsRecord<T>) {
    record(from, to, path);
  } else if constexpr (std::is_enum_v<T>) {
    word(from, to, path);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!from.is_boolean()) return wrong_type(from, path, "true or false");
    to = from.get<bool>();
  } else {
    integer(from, to, path, limits);
  }
}

template <typename T>
void Decoder::integer(const ordered_json& from, T& to, const std::string& path,
                      const fields::Limits& limits) {
  using OfType = std::numeric_limits<T>;
  const auto fits = [&limits](auto number) {
    if (!std::in_range<T>(number)) return false;
    return !limits.is_bounded() || (std::cmp_greater_equal(number, limits.least) &&
                                    std::cmp_less_equal(number, limits.most));
  };
  const bool is_good =
      from.is_number_integer() && (from.is_number_unsigned() ? fits(from.get<std::uint64_t>())
                                                             : fits(from.get<std::int64_t>()));
  if (is_good) {
    to = from.get<T>();
    return;
  }
  wrong_type(from, path,
             limits.is_bounded()
                 ? fmt::format("a whole number from {} to {}", limits.least, limits.most)
                 : fmt::format("a whole number from {} to {}", OfType::min(), OfType::max()));
}

template <typename T>
void Decoder::word(const ordered_json& from, T& to, const std::string& path) {
  const auto& names = fields::Names<T>::list;
  if (!from.is_string())
    return wrong_type(from, path, fmt::format("one of {}", fmt::join(names, ", ")));
  const auto text = from.get<std::string>();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (text == names[i]) {
      to = static_cast<T>(i);
      return;
    }
  const std::vector<std::string> known(names.begin(), names.end());
  fail(path, fmt::format("unknown value {}; {}", scalar(from), suggestion(text, known)));
}

template <typename T>
void Decoder::list(const ordered_json& from, T& to, const std::string& path,
                   const fields::Limits& limits) {
  if (!from.is_array()) return wrong_type(from, path, "a list [...]");
  if (from.size() > limits.elements)
    return fail(
        path, fmt::format("has {} elements, at most {} are allowed", from.size(), limits.elements));
  to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (error_) return;
    value(from[i], to[i], fmt::format("{}[{}]", path, i), {0, limits.least, limits.most});
  }
}

Status refused(const std::string& source, const std::string& what) {
  return {Code::kInvalidArgument, source + ": " + what};
}

// Returns how deep brackets are nested, so that a hostile file cannot exhaust the stack.
std::size_t nesting(std::string_view text) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

std::string where(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", line, before.size() - start + 1);
}

// Notes the first key that an object has twice: the library would keep the last value without a
// word.
ordered_json::parser_callback_t refuse_repeated(std::string& repeated) {
  const auto open = std::make_shared<std::vector<std::set<std::string>>>();
  return [open, &repeated](int, ordered_json::parse_event_t event, const ordered_json& parsed) {
    if (event == ordered_json::parse_event_t::object_start) open->emplace_back();
    if (event == ordered_json::parse_event_t::object_end) open->pop_back();
    if (event != ordered_json::parse_event_t::key) return true;
    const bool is_new = open->back().insert(parsed.get<std::string>()).second;
    if (!is_new && repeated.empty()) repeated = parsed.get<std::string>();
    return true;
  };
}

Result<ordered_json> parse(std::string_view text, const std::string& source) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return failed(refused(source, "the file is empty; give a case file written by lockstep"));
  if (nesting(text) > kMaxNesting)
    return failed(
        refused(source, fmt::format("nested deeper than {} levels: not a case file", kMaxNesting)));
  try {
    std::string repeated;
    ordered_json json = ordered_json::parse(text, refuse_repeated(repeated));
    if (repeated.empty()) return json;
    return failed(refused(
        source,
        fmt::format("the field \"{}\" is there twice in one object; remove one", repeated)));
  } catch (const nlohmann::json::parse_error& error) {
    if (error.byte > text.size())
      return failed(refused(source, fmt::format("not JSON: it ends too early, at {}; the file is "
                                                "truncated, get a whole copy",
                                                where(text, text.size()))));
    const std::size_t byte = error.byte == 0 ? 0 : error.byte - 1;
    return failed(refused(source, fmt::format("not JSON: unexpected text at {}; correct it there",
                                              where(text, byte))));
  } catch (const nlohmann::json::exception&) {
    return failed(refused(source, "not JSON: a number is out of range; correct it"));
  }
}

Status check_schema(const ordered_json& json, const std::string& source) {
  if (!json.is_object()) return refused(source, "not a case file: it should hold one object {...}");
  const auto schema = json.find("schema");
  if (schema == json.end())
    return refused(source,
                   fmt::format("no \"schema\" field: not a case file; a case written by hand "
                               "needs \"schema\": {}",
                               kCaseSchema));
  if (!schema->is_number_unsigned() || *schema < 1u)
    return refused(source, fmt::format("schema: expected a number from 1 to {}, found {}",
                                       kCaseSchema, scalar(*schema)));
  if (*schema > kCaseSchema)
    return refused(source,
                   fmt::format("written by a newer lockstep (schema {}, this build reads up "
                               "to {}): update lockstep",
                               schema->dump(), kCaseSchema));
  const auto about = json.find("about");
  if (about != json.end() && !about->is_string())
    return refused(source, "about: expected text in quotes, found " + scalar(*about));
  return {};
}

// Fields that came with a schema. A file of an older schema that has one is refused: the schema of
// the file would take the field from elsewhere.
Status check_fields_of_schema(const ordered_json& json, unsigned schema,
                              const std::string& source) {
  constexpr std::array<std::pair<const char*, unsigned>, 5> kNewer = {
      {{"/environment", 2},
       {"/program/options/power_sgd_rank", 2},
       {"/program/misfit/variant", 2},
       {"/torch", 3},
       {"/program/disagreement", 4}}};
  for (const auto& [path, since] : kNewer)
    if (schema < since && json.contains(ordered_json::json_pointer(path)))
      return refused(source,
                     fmt::format("{}: schema {} has no such field; write \"schema\": {}, or "
                                 "leave it out",
                                 std::string(path + 1), schema, kCaseSchema));
  return {};
}

// Up to schema 2 the options of PyTorch stood among those of the program.
void move_torch_options(ordered_json& json) {
  const ordered_json::json_pointer place("/program/options");
  if (!json.contains(place) || !json[place].is_object()) return;
  ordered_json& options = json[place];
  ordered_json torch;  // not in `json` yet: a new key there would move `options`
  fields::for_each<TorchOptions>([&](const auto& field) {
    const auto found = options.find(field.name);
    if (found == options.end()) return;
    torch[field.name] = *found;
    options.erase(found);
  });
  if (!torch.is_null()) json["torch"] = std::move(torch);
}

// Up to schema 3 a disagreement was called a misfit.
void rename_misfit(ordered_json& json) {
  const ordered_json::json_pointer misfit("/program/misfit");
  if (!json.contains(misfit)) return;
  json["program"]["disagreement"] = ordered_json(json[misfit]);
  json["program"].erase("misfit");
}

// Reads the record into `found`. It knows no other fields, so that none is lost in silence.
Status decode_found_with(const ordered_json& json, const std::string& source, FoundWith& found) {
  const auto record = json.find(kFoundWith);
  if (record == json.end()) return {};
  if (!record->is_object())
    return refused(source, fmt::format("{}: expected an object {{...}}, found {}", kFoundWith,
                                       scalar(*record)));
  for (const auto& [name, value] : record->items()) {
    const std::string path = fmt::format("{}.{}", kFoundWith, name);
    const auto field = std::find_if(kFoundFields.begin(), kFoundFields.end(),
                                    [&](const FoundField& each) { return name == each.name; });
    if (field == kFoundFields.end()) {
      std::vector<std::string> known;
      for (const FoundField& each : kFoundFields) known.emplace_back(each.name);
      return refused(source, fmt::format("{}: unknown field; {}", path, suggestion(name, known)));
    }
    if (!value.is_string())
      return refused(source,
                     fmt::format("{}: expected text in quotes, found {}", path, scalar(value)));
    found.*field->member = value.get<std::string>();
  }
  return {};
}

// "/forwards/0/local" as "forwards[0].local".
std::string dotted(const std::string& pointer) {
  std::string out;
  for (std::size_t at = 1, end = 0; at <= pointer.size(); at = end + 1) {
    end = std::min(pointer.find('/', at), pointer.size());
    const std::string word = pointer.substr(at, end - at);
    if (std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; }))
      out += "[" + word + "]";
    else
      out += (out.empty() ? "" : ".") + word;
  }
  return out;
}

// Returns the clause by which the program excludes what was written for an option: " (P14)".
std::string clause_of(const std::string& path, const reference::Program& program) {
  std::string clause;
  fields::for_each<reference::Replicated>([&](const auto& option) {
    if (path != std::string("/program/options/") + option.name) return;
    reference::for_each_excluded(reference::kExclusions, [&](const auto& row, const auto& field) {
      if constexpr (requires { option.member == field; })
        if (option.member == field && row.holds(program)) clause = fmt::format(" ({})", row.clause);
    });
  });
  return clause;
}

// Adds a line, which begins with `where`, for each field that has another value in the run.
// explain(path) follows it.
template <typename Explain>
void add_changes(const ordered_json& written, const ordered_json& run, const std::string& where,
                 const Explain& explain, std::vector<std::string>& lines) {
  for (const ordered_json& change : ordered_json::diff(written, run)) {
    if (change["op"] == "add") continue;  // what nobody wrote
    const auto path = change["path"].get<std::string>();
    const ordered_json::json_pointer place(path);
    const std::string becomes = change["op"] == "replace" ? scalar(change["value"]) : "nothing";
    lines.push_back(fmt::format("{}{}: {} means {} there{}", where, dotted(path),
                                scalar(written.at(place)), becomes, explain(path)));
  }
}

// Whoever writes that one rank of a synced step skips it, drops all outputs, or runs all forwards
// under no_sync, writes that the rank is absent (P8).
void mark_absent(reference::Program& program) {
  for (reference::Step& step : program.steps)
    for (std::size_t v = 0; v < step.variants.size(); ++v) {
      reference::RankPass& pass = step.variants[v];
      const bool keeps = keeps_a_forward(pass);
      const bool is_local =
          keeps && std::all_of(pass.forwards.begin(), pass.forwards.end(),
                               [](const auto& each) { return each.local || each.discard; });
      const bool drops_all = !keeps && !pass.forwards.empty();
      if (pass.absent || !(pass.skip || is_local || drops_all)) continue;
      pass.absent = true;
      if (absent_variant(program, step) != v) pass.absent = false;
      for (reference::Forward& forward : pass.forwards)
        forward.local = forward.local && !(pass.absent && is_local);
    }
}

std::vector<std::string> rewritten_fields(const Case& written, const Case& run) {
  std::vector<std::string> lines;
  const auto& steps = written.program.steps;
  LOCKSTEP_CHECK_EQ(steps.size(), run.program.steps.size());  // longer lists are refused
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto& as_written = steps[s].variants;
    const auto& as_run = run.program.steps[s].variants;
    if (as_written.size() > run.program.world)
      lines.push_back(fmt::format("step {}: no rank takes variant {}", s, run.program.world));
    for (std::size_t rank = 0; rank < run.program.world && !as_written.empty(); ++rank)
      add_changes(
          encode(as_written[rank % as_written.size()]), encode(as_run[rank % as_run.size()]),
          fmt::format("step {}, rank {}: ", s, rank), [](const std::string&) { return ""; }, lines);
  }
  Case rest = written;
  Case rest_of_run = run;
  for (auto* each : {&rest.program.steps, &rest_of_run.program.steps})
    for (reference::Step& step : *each) step.variants.clear();
  add_changes(
      encode(rest), encode(rest_of_run), "",
      [&](const std::string& path) { return clause_of(path, run.program); }, lines);
  return lines;
}

}  // namespace

std::string to_json(const Case& value, std::string_view about, const FoundWith& found) {
  ordered_json json = ordered_json::object();
  json["schema"] = kCaseSchema;
  if (!about.empty()) json["about"] = about;
  for (const FoundField& field : kFoundFields)
    if (!(found.*field.member).empty()) json[kFoundWith][field.name] = found.*field.member;
  Case shorter = value;
  for (reference::Parameter& parameter : shorter.program.parameters) {
    const reference::Parameter full = std::exchange(parameter, {});
    if (is_original(full)) {
      parameter = full;
      continue;
    }
    // normalize() takes everything else from the owner.
    parameter.shared_with = full.shared_with;
    if (full.shared_with > 0) continue;
    parameter.copy_of = full.copy_of;
    parameter.key = full.key;
    parameter.device = full.device;
  }
  json.update(encode(shorter));
  std::string out;
  print(out, json, 0, 0);
  return out + "\n";
}

Result<Case> from_json(std::string_view text, const std::string& source, std::string* about,
                       std::vector<std::string>* rewritten) {
  if (text.size() > kMaxCaseBytes)
    return failed(
        refused(source, fmt::format("larger than {} MiB: not a case file", kMaxCaseBytes >> 20u)));
  Result<ordered_json> json = parse(text, source);
  if (!json) return failed(std::move(json.error()));
  if (Status status = check_schema(*json, source); !status.ok()) return failed(std::move(status));
  FoundWith ignored;
  if (Status status = decode_found_with(*json, source, ignored); !status.ok())
    return failed(std::move(status));
  const auto schema = (*json)["schema"].get<unsigned>();
  if (Status status = check_fields_of_schema(*json, schema, source); !status.ok())
    return failed(std::move(status));
  if (schema < 3) move_torch_options(*json);
  if (schema < 4) rename_misfit(*json);
  Case value;
  Decoder decoder;
  decoder.record(*json, value, "");
  if (decoder.error()) return failed(refused(source, *decoder.error()));
  if (about != nullptr && json->contains("about")) *about = (*json)["about"].get<std::string>();
  mark_absent(value.program);
  const std::optional<Case> written = rewritten != nullptr ? std::optional(value) : std::nullopt;
  normalize(value);
  if (written) *rewritten = rewritten_fields(*written, value);
  if (schema == 1) take_choices_from_key(value);
  return value;
}

Result<FoundWith> found_with_of(std::string_view text, const std::string& source) {
  Result<ordered_json> json = parse(text, source);
  if (!json) return failed(std::move(json.error()));
  if (Status status = check_schema(*json, source); !status.ok()) return failed(std::move(status));
  FoundWith found;
  if (Status status = decode_found_with(*json, source, found); !status.ok())
    return failed(std::move(status));
  return found;
}

}  // namespace lockstep::properties
