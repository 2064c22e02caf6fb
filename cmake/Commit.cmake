# Writes OUT, a source that holds the commit of SOURCE as `git describe` names it. Run by every build; what has not changed is
# not written again.
set(commit)
if(GIT)
  execute_process(COMMAND ${GIT} describe --always --dirty WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT
     "namespace lockstep::properties {\nextern const char* const kCommit;\nconst char* const kCommit = \"${commit}\";\n}\n")
