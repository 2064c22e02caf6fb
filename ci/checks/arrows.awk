# The rules of ci/checks/arrows, which calls this with two kinds of input files: sources (FILENAME is a path from the root)
# and, last, the list of link targets that CMake wrote (set kind=links on the command line before it).

function complain(where, what) {
  print where ": " what
  found = 1
}

function folder_of(path) { return substr(path, 1, index(path, "/") - 1) }

function is_test(path) { return path ~ /_test[a-z_]*\.(h|cc|cu)$/ || path ~ /\/test_[a-z_]*\.(h|cc|cu)$/ }

function is_standard(header) { return header ~ /^[a-z0-9_]+$/ }

# Headers of the operating system and of the processor.
function is_system(header) {
  return header ~ /^(sys|netinet|arpa|net|linux)\// ||
         header ~ /^(cxxabi|dirent|dlfcn|elf|errno|execinfo|fcntl|ifaddrs|netdb|poll|sched|signal|stdlib|unistd)\.h$/ ||
         header ~ /^(cpuid|immintrin|arm_neon)\.h$/
}

function is_test_library(header) { return header ~ /^(gtest|gmock|rapidcheck)(\/|\.h$)/ }

# What waits or runs: reducer/ takes it from its platform.
function is_threading(header) {
  return header ~ /^(atomic|barrier|condition_variable|future|latch|mutex|semaphore|shared_mutex|stop_token|thread)$/
}

# may_use(FROM, TO): whether a file or target of one folder may use one of another, tests apart.
function may_use(from, to) {
  if (from == to) return 1
  if (from == "faults" || from == "benchmarks") return to == "reducer"
  return from == "properties" && (to == "reference" || to == "reducer" || to == "faults")
}

# The rooms of a folder, from the ground up: a room may use those of lower levels and itself.
# Rooms of one level do not use each other, but for tensor and device, which are one thing in two folders.
function add_rooms(folder, list,   rooms, parts, i, j, count) {
  count = split(list, rooms, " ")
  for (i = 1; i <= count; ++i) {
    split(rooms[i], parts, ",")
    for (j = 1; j in parts; ++j) level[folder "/" parts[j]] = i
  }
}

BEGIN {
  add_rooms("properties", "case generate shrink explain process hosts observe subject oracle components lane report run compare campaign cli gtest")
  add_rooms("reducer", "base platform bucket,diagnosis,core device,tensor autograd,comm,device/host,device/cuda " \
                       "hooks,comm/gloo,comm/nccl . torch,example")
}

# room_of(PATH): "properties/lane", "reducer/comm/gloo", "reducer/." for a file of the folder itself. The program of PyTorch's
# ranks stands on the lanes, as the program lockstep does.
function room_of(path) {
  if (path ~ /^properties\/subject\/torch\// && path !~ /^properties\/subject\/torch\/model\//) return "properties/cli"
  sub(/\/[^\/]*$/, "", path)
  if (path == "reducer") return "reducer/."
  while (!(path in level) && index(path, "/") > 0) sub(/\/[^\/]*$/, "", path)
  return path
}

# Returns whether it complains.
function check_rooms(path, where, header,   from, to) {
  if (is_test(path) || folder_of(path) != folder_of(header)) return 0
  from = room_of(path)
  to = room_of(header)
  if (from == to || !(from in level) || !(to in level) || level[to] < level[from]) return 0
  if (from ~ /^reducer\/(tensor|device)$/ && to ~ /^reducer\/(tensor|device)$/) return 0
  complain(where, header ": " from "/ must not use " to "/, which stands above or beside it (ci/checks/arrows has the order)")
  return 1
}

# Includes in angle brackets: the world outside.
function check_outside(from, path, where, header) {
  if (path ~ /^reducer\/core\// && !is_standard(header) && !is_test(path)) {
    complain(where, "<" header "> in reducer/core/: it depends on the standard library and reducer/base/ alone")
    return
  }
  if (is_standard(header)) {
    # base is built once for all platforms, so it may count references with the standard's atomics.
    if (header == "atomic" && path ~ /^reducer\/base\//) return
    if (from == "reducer" && is_threading(header) && !is_test(path) && path !~ /^reducer\/platform\/os\//)
      complain(where, "<" header "> in reducer/: take it from reducer/platform/platform.h")
    return
  }
  if (is_test(path) && is_test_library(header)) return
  if (from == "reference") {
    if (is_test(path) && path ~ /gloo/ && header ~ /^gloo\//) return
    complain(where, "<" header "> in reference/: it depends on the standard library alone")
  } else if (from == "reducer") {
    if (header == "tl/expected.hpp" || is_system(header)) return
    if (header ~ /^(torch|ATen|c10|pybind11)\// && path ~ /^reducer\/torch\//) return
    if (header ~ /^gloo\// && path ~ /^reducer\/comm\/gloo\//) return
    if (header == "xxhash.h" && path == "reducer/comm/seal.cc") return
    if (header ~ /^nccl/ && path ~ /^reducer\/comm\/nccl\//) return
    if (header ~ /^cu[a-z0-9_]*\.h$/ && path ~ /^reducer\/(device\/cuda|comm\/nccl)\//) return
    complain(where, "<" header "> is not for this part of reducer/")
  } else if (from == "faults" && !is_test(path)) {
    if (header ~ /^gloo\// && path !~ /^faults\/gloo\//)
      complain(where, "<" header "> in faults/ outside faults/gloo/")
    if (is_test_library(header)) complain(where, "<" header "> in faults/ outside a test")
  }
}

# Which parts of reducer/ its own parts, and faults/, may see. An example sees what users see.
function check_reducer_part(from, path, where, header) {
  if (path ~ /^reducer\/example\//) return
  if (header ~ /^reducer\/example\//) complain(where, header " is an example: nothing stands on it")
  else if (from == "reducer") {
    if (path ~ /^reducer\/core\// && header !~ /^reducer\/(base|core)\//)
      complain(where, "reducer/core/ includes " header ": the core stands on base alone")
    else if (header ~ /^reducer\/comm\/gloo\// && path !~ /^reducer\/(comm\/gloo|torch)\//)
      complain(where, header " outside reducer/comm/gloo/: use the interfaces in reducer/comm/")
    else if (header ~ /^reducer\/comm\/nccl\// && path !~ /^reducer\/comm\/nccl\//)
      complain(where, header " outside reducer/comm/nccl/: use the interfaces in reducer/comm/")
    else if (header ~ /^reducer\/device\/cuda\// && path !~ /^reducer\/(device\/cuda|comm\/nccl)\//)
      complain(where, header " outside reducer/device/cuda/: use the interfaces in reducer/device/")
  } else if (from == "faults" && !is_test(path)) {
    if (header ~ /^reducer\/comm\/gloo\// && path ~ /^faults\/gloo\//) return
    if (header == "reducer/comm/nccl/nccl_api.h" && path ~ /^faults\/sim\/nccl\//) return
    if (header !~ /^reducer\/(base|platform|comm|device|tensor)\// || header ~ /^reducer\/comm\/(gloo|nccl)\//)
      complain(where, header " in faults/: it may see the interfaces of reducer/, not its inside")
  }
}

# A lane sees of the reducer what users see, and what carries its collectives and its memory.
function check_lane(where, header) {
  if (header == "reducer/data_parallel.h") return
  if (header !~ /^reducer\/(base|platform|comm|device)\//)
    complain(where, header " in properties/lane/: fuzz this part by itself, as a component (properties/components/)")
}

# Includes in quotes: from the root of the sources.
function check_own(from, path, where, header, to) {
  if (header == "lockstep_platform/build_namespace.h" && path == "reducer/base/build_namespace.h") return
  if (header == "lockstep_platform/types.h") {
    if (path !~ /^reducer\/platform\/platform\.h$/ && path !~ /^faults\/sim\//)
      complain(where, "lockstep_platform/types.h: include reducer/platform/platform.h")
    return
  }
  # The example plays a user from outside: it sees the one header that users get, and its own files.
  if (path ~ /^properties\/subject\/example\// && path !~ /_test\.cc$/) {
    if (index(header, "/") > 0) complain(where, header " in the example of a subject: users have lockstep_subject.h alone")
    return
  }
  # What differs between versions of libtorch; it includes nothing of ours.
  if (from == "benchmarks" && header == "properties/subject/torch/interface.h") return
  to = folder_of(header)
  if (to !~ /^(reference|reducer|faults|properties|benchmarks)$/) {
    complain(where, "\"" header "\": includes in quotes start at the root of the sources")
    return
  }
  if (is_test(header) && !is_test(path)) complain(where, header " is for tests")
  if (check_rooms(path, where, header)) return
  if (!may_use(from, to) && !(from == "faults" && to == "reference" && is_test(path)))
    complain(where, from "/ includes " header ": " from "/ must not know " to "/")
  else if (to == "reducer" && path ~ /^properties\/lane\// && !is_test(path))
    check_lane(where, header)
  else if (to == "reducer")
    check_reducer_part(from, path, where, header)
}

kind != "links" && /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
  header = $0
  sub(/^[ \t]*#[ \t]*include[ \t]*/, "", header)
  quote = substr(header, 1, 1)
  header = substr(header, 2)
  sub(/[>"].*/, "", header)
  includes++
  if (quote == "<") check_outside(folder_of(FILENAME), FILENAME, FILENAME ":" FNR, header)
  else check_own(folder_of(FILENAME), FILENAME, FILENAME ":" FNR, header)
}

# Links: lines "folder target type library;library;...". Read whole first: a target may link one that comes later.
kind == "links" {
  folder[$2] = $1
  type[$2] = $3
  names[++targets] = $2
  list = $4
  gsub(/\$<[A-Z_]+:/, "", list)
  gsub(/>/, "", list)
  links[$2] = list
}

function check_link(target, library, from, to, test) {
  from = folder[target]
  test = type[target] == "EXECUTABLE" && target ~ /_test$/
  if (library in folder) {
    to = folder[library]
    if (may_use(from, to) || to == "cmake" && library != "lockstep_gloo") return
    if (from == "faults" && to == "reference" && test) return
    # The second build of the reducer stands on the simulator's platform in place of the operating system's.
    if (target == "lockstep_reducer_sim" && library == "lockstep_sim_platform") return
    if (library == "lockstep_gloo" && may_link_gloo(from, target, test)) return
    complain("target " target, from "/ links " library " of " to "/")
    return
  }
  if (test || from == "properties" || from == "benchmarks" || from == "ci") return
  if (from == "reference")
    complain("target " target, "reference/ links " library ": it depends on the standard library alone")
  if (from == "reducer" && library !~ /^(tl::expected|Threads::Threads|dl|lockstep::gloo|CUDA::[a-z_]+)$/ &&
      !(target ~ /^lockstep_torch/ && library ~ /torch_python/))
    complain("target " target, "reducer/ links " library)
}

function may_link_gloo(from, target, test) {
  if (from == "reference") return test && target ~ /gloo/
  if (from == "reducer") return target == "lockstep_reducer" || target ~ /gloo|^lockstep_torch_/
  return 1
}

# find_cycle(TARGET, WAY): complains of targets that need each other; each target is visited once.
function find_cycle(target, way,   count, list, i) {
  if (state[target] == "done") return
  if (state[target] == "open") {
    complain("target " target, "it needs itself:" way " " target)
    return
  }
  state[target] = "open"
  count = split(links[target], list, ";")
  for (i = 1; i <= count; ++i)
    if (list[i] in folder) find_cycle(list[i], way " " target " ->")
  state[target] = "done"
}

END {
  for (i = 1; i <= targets; ++i) find_cycle(names[i], "")
  for (i = 1; i <= targets; ++i) {
    if (folder[names[i]] == "cmake") continue
    count = split(links[names[i]], list_of, ";")
    for (j = 1; j <= count; ++j)
      if (list_of[j] != "") check_link(names[i], list_of[j])
  }
  if (includes == 0) complain("arrows", "no include was found: is this the root of the sources?")
  if (!found) print "arrows: " includes " includes and " targets + 0 " targets, all as they should be"
  exit found
}
