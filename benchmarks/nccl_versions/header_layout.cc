#include "benchmarks/nccl_versions/header_layout.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "benchmarks/nccl_versions/child_process.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kCompileSeconds = 300;

Status wrong(const std::string& what) { return Status(Code::kInvalidArgument, what); }

// Without comments and without lines of the preprocessor.
std::string plain(const std::string& header) {
  const std::string joined = std::regex_replace(header, std::regex(R"(\\\r?\n)"), " ");
  const std::string code =
      std::regex_replace(joined, std::regex(R"(/\*(?:[^*]|\*+[^*/])*\*+/|//[^\n]*)"), " ");
  return std::regex_replace(code, std::regex(R"((^|\n)[ \t]*#[^\n]*)"), "$1");
}

// The text up to the brace that closes, from behind the one that opened.
std::string body_from(const std::string& text, std::size_t begin) {
  int depth = 1;
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return text.substr(begin, i - begin);
  }
  return "";
}

// The names of the fields of a structure; the fields of a structure inside it are not among them.
std::vector<HeaderField> fields_of(const std::string& body) {
  std::string flat;
  int depth = 0;
  for (const char c : body) {
    if (c == '{') ++depth;
    if (depth == 0) flat += c;
    if (c == '}') --depth;
  }
  std::vector<HeaderField> fields;
  std::istringstream declarations(flat);
  const std::regex name(R"((\w+)\s*(?:\[[^\]]*\]\s*)?$)");
  for (std::string one; std::getline(declarations, one, ';');) {
    std::smatch match;
    const bool is_field = one.find('(') == std::string::npos && std::regex_search(one, match, name);
    if (is_field) fields.push_back({match[1], 0, 0, std::nullopt});
  }
  return fields;
}

std::string initializer_of(const std::string& structure) {
  return structure == "ncclConfig_t" ? "NCCL_CONFIG_INITIALIZER" : "";
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A folder for the program that is compiled, removed at the end.
class WorkFolder {
 public:
  WorkFolder() {
    const std::string pattern =
        (std::filesystem::temp_directory_path() / "nccl-header-XXXXXX").string();
    path_ = pattern;
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

HeaderLayout find_declarations(const std::string& header) {
  HeaderLayout found;
  const std::string text = plain(header);
  const std::regex structure(R"(typedef\s+struct\s*\w*\s*\{)");
  const std::regex closing(R"(^\s*\}\s*(\w+)\s*;)");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), structure);
       it != std::sregex_iterator(); ++it) {
    const auto begin = static_cast<std::size_t>(it->position() + it->length());
    const std::string body = body_from(text, begin);
    const std::string rest = text.substr(begin + body.size(), 200);
    std::smatch name;
    if (std::regex_search(rest, name, closing))
      found.structures.push_back({name[1], 0, fields_of(body)});
  }
  const std::regex function(R"(\b(nccl[A-Z]\w*)\s*\()");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), function);
       it != std::sregex_iterator(); ++it)
    found.functions.push_back((*it)[1]);
  return found;
}

std::string layout_program(const HeaderLayout& declared) {
  std::string out =
      "#include <stddef.h>\n#include <nccl.h>\n#include <cstdio>\n#include <cstring>\n"
      "template <class T> long long value_of(const T& field) {\n"
      "  long long value = 0;\n"
      "  if (sizeof(field) == sizeof(int)) { int i; std::memcpy(&i, &field, sizeof i); return i; "
      "}\n"
      "  if (sizeof(field) == sizeof value) std::memcpy(&value, &field, sizeof value);\n"
      "  return value;\n}\n"
      "int main() {\n  std::printf(\"version %d\\n\", NCCL_VERSION_CODE);\n";
  for (const HeaderStructure& one : declared.structures) {
    out += fmt::format("  std::printf(\"structure {0} %zu\\n\", sizeof({0}));\n", one.name);
    for (const HeaderField& field : one.fields)
      out += fmt::format(
          "  std::printf(\"field {1} %zu %zu\\n\", offsetof({0}, {1}), sizeof({0}::{1}));\n",
          one.name, field.name);
    const std::string initializer = initializer_of(one.name);
    if (initializer.empty()) continue;
    out += fmt::format("  {{\n    const {} value = {};\n", one.name, initializer);
    for (const HeaderField& field : one.fields)
      out += fmt::format("    std::printf(\"initial {0} %lld\\n\", value_of(value.{0}));\n",
                         field.name);
    out += "  }\n";
  }
  return out + "  return 0;\n}\n";
}

Status read_layout(const std::string& printed, HeaderLayout& layout) {
  std::istringstream lines(printed);
  HeaderStructure* structure = nullptr;
  const auto field_named = [&](const std::string& name) -> HeaderField* {
    if (structure == nullptr) return nullptr;
    for (HeaderField& field : structure->fields)
      if (field.name == name) return &field;
    return nullptr;
  };
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    std::string name;
    words >> kind;
    if (kind == "version") {
      words >> layout.version;
    } else if (kind == "structure") {
      words >> name;
      structure = nullptr;
      for (HeaderStructure& one : layout.structures)
        if (one.name == name) structure = &one;
      if (structure != nullptr) words >> structure->size;
    } else if (words >> name; HeaderField* field = field_named(name)) {
      if (kind == "field") words >> field->offset >> field->size;
      if (std::int64_t value = 0; kind == "initial" && words >> value) field->initial = value;
    }
    if (!words) return wrong(fmt::format("the layout of the header has a line '{}'", line));
  }
  return layout.version == 0 ? wrong("the header does not say its version") : Status();
}

Result<HeaderLayout> measure_header(const std::string& include, const std::string& stubs) {
  const std::string header = include + "/nccl.h";
  const std::string text = read_file(header);
  if (text.empty()) return failed(wrong(fmt::format("'{}' cannot be read, or is empty", header)));
  HeaderLayout layout = find_declarations(text);
  const WorkFolder folder;
  const std::string source = folder.path() + "/layout.cc";
  const std::string program = folder.path() + "/layout";
  std::ofstream(source) << layout_program(layout);
  const char* const chosen = std::getenv("CXX");
  const std::string compiler = chosen != nullptr && *chosen != '\0' ? chosen : "c++";
  const ChildResult compiled = run_program(
      {compiler, "-std=c++17", "-w", "-I" + include, "-I" + stubs, source, "-o", program},
      kCompileSeconds);
  if (!compiled.is_fine())
    return failed(
        wrong(fmt::format("'{}' does not compile with {} ({}): {}", header, compiler,
                          compiled.describe(), first_line_with(compiled.output, "error"))));
  const ChildResult printed = run_program({program}, kCompileSeconds);
  if (!printed.is_fine())
    return failed(wrong(
        fmt::format("the layout of '{}' cannot be printed ({})", header, printed.describe())));
  Status status = read_layout(printed.output, layout);
  if (!status.ok()) return failed(std::move(status));
  return layout;
}

}  // namespace lockstep::benchmarks
