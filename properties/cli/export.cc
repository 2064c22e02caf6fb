#include "properties/cli/export.h"

#include <cstdio>

#include "properties/case/case_json.h"
#include "properties/cli/output.h"
#include "properties/oracle/verdict.h"
#include "properties/report/python_script.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

int complain(const std::string& what) {
  std::fprintf(stderr, "lockstep: %s\n", what.c_str());
  return static_cast<int>(Failing::kUsage);
}

}  // namespace

int run_export(const ExportOptions& options) {
  LOCKSTEP_CHECK(options.is_python);
  std::string about;
  const Result<Case> c = read_case(options.case_file, &about);
  if (!c) return complain(c.error().failure().detail);
  const Result<std::string> script = python_script(*c, about);
  if (!script) return complain(script.error().failure().detail);
  if (!options.output.empty()) {
    const Status status = write_file(options.output, *script);
    return status.ok() ? 0 : complain(status.failure().detail);
  }
  tell(*script);
  return 0;
}

}  // namespace lockstep::properties
