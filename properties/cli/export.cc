#include "properties/cli/export.h"

#include <cstdio>

#include "properties/case/case_json.h"
#include "properties/cli/output.h"
#include "properties/oracle/verdict.h"
#include "properties/report/python_script.h"
#include "reducer/base/check.h"

namespace lockstep::properties {

int run_export(const ExportOptions& options) {
  LOCKSTEP_CHECK(options.is_python);
  std::string about;
  const Result<Case> c = read_case(options.case_file, &about);
  if (!c) return complain(c.error());
  const Result<std::string> script = python_script(*c, about);
  if (!script) return complain(script.error());
  if (!options.output.empty()) {
    const Status status = write_file(options.output, *script);
    return status.ok() ? 0 : complain(status);
  }
  tell(*script);
  return 0;
}

}  // namespace lockstep::properties
