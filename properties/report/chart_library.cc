// The source of Chart.js as bytes of this program. The assembler includes the file, which costs no
// time.
#include "properties/report/page.h"

#ifdef LOCKSTEP_CHART_LIBRARY
__asm__(
    ".pushsection .rodata\n"
    ".global lockstep_chart_library\n"
    ".global lockstep_chart_library_end\n"
    "lockstep_chart_library:\n"
    ".incbin \"" LOCKSTEP_CHART_LIBRARY
    "\"\n"
    "lockstep_chart_library_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" const char lockstep_chart_library[];
extern "C" const char lockstep_chart_library_end[];
#endif

namespace lockstep::properties {

std::string_view chart_library() {
#ifdef LOCKSTEP_CHART_LIBRARY
  return {lockstep_chart_library,
          static_cast<std::size_t>(lockstep_chart_library_end - lockstep_chart_library)};
#else
  return {};
#endif
}

}  // namespace lockstep::properties
