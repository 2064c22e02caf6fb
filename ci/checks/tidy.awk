# The rules of ci/checks/tidy for one C++ file after the other; loaded after source.awk. FILENAME is a path from the root.
#
# The length of a function is found by counting braces. A brace that opens outside every function belongs to one when
# the text before it, since the last ; { or }, has a parenthesis and is not a namespace, a type or the like.
BEGIN {
  max_columns = 100
  max_file = 900
  max_finding = 60  # a program that shows a defect of NCCL
  max_function = 80
  banned = "random_device|system_clock|thread_local|sleep_for|this_thread::sleep_until|gettimeofday"
}

function complain(line, what) {
  print FILENAME ":" line ": " what
  found = 1
}

function start_file() {
  begin_file()
  files++
  depth = 0          # of braces
  function_depth = 0 # the depth at which the current function opened, 0 outside
  statement = ""
  statement_line = 0
  in_directive = 0
  unordered = ""     # names of unordered containers, as "|a|b|"
  strict = FILENAME ~ /^(reference|reducer|faults)\// && FILENAME !~ /_test[a-z_]*\.(h|cc|cu)$/ &&
           FILENAME !~ /\/test_[a-z_]*\.(h|cc|cu)$/ && FILENAME !~ /^reducer\/platform\/os\// &&
           FILENAME !~ /^faults\/(os|gloo|node)\//
  longest = FILENAME ~ /\/findings\/finding_/ ? max_finding : max_file
}

function is_function(text) {
  if (index(text, "(") == 0) return 0
  return text !~ /(^|[^A-Za-z0-9_])(namespace|class|struct|union|enum|extern)[^A-Za-z0-9_(]/
}

function open_brace(line) {
  depth++
  if (function_depth == 0 && is_function(statement)) {
    function_depth = depth
    function_line = statement_line
    function_name = statement
    sub(/[ \t]*\(.*/, "", function_name)
    sub(/.*[ \t*&]/, "", function_name)
  }
  statement = ""
}

function close_brace(line) {
  if (function_depth > 0 && depth == function_depth) {
    function_depth = 0
    functions++
    if (line - function_line + 1 > max_function)
      complain(function_line, "the function " function_name " has " line - function_line + 1 " lines, more than " \
               max_function)
  }
  if (depth > 0) depth--
  statement = ""
}

function count_braces(code, line, at, mark) {
  while (match(code, /[{};]/)) {
    at = RSTART
    mark = substr(code, at, 1)
    add_to_statement(substr(code, 1, at - 1), line)
    code = substr(code, at + 1)
    if (mark == "{") open_brace(line)
    else if (mark == "}") close_brace(line)
    else statement = ""
  }
  add_to_statement(code, line)
}

function add_to_statement(text, line) {
  if (function_depth > 0) return  # inside a function only the braces count
  if (statement == "" && text ~ /[^ \t]/) statement_line = line
  if (statement != "" || text ~ /[^ \t]/) statement = statement " " text
}

function names(code, word) { return code ~ ("(^|[^A-Za-z0-9_])(" word ")([^A-Za-z0-9_]|$)") }

function check_names(code, line, name) {
  if (names(code, banned)) {
    match(code, banned)
    complain(line, substr(code, RSTART, RLENGTH) " is not used here: time, randomness and threads come in from outside")
  }
  if (code ~ /(^|[^A-Za-z0-9_.>])s?rand[ \t]*\(/) complain(line, "rand is not used here: randomness comes in from outside")
  if (match(code, /unordered_(multi)?(map|set)<.*>[ \t]*[A-Za-z_0-9]+[ \t]*(;|=|\{|$)/)) {
    name = substr(code, RSTART, RLENGTH)
    sub(/[ \t]*(;|=|\{)?$/, "", name)
    sub(/.*[^A-Za-z0-9_]/, "", name)
    unordered = unordered "|" name "|"
  }
  if (match(code, /for[ \t]*\(.*[^:]:[ \t]+[*A-Za-z_0-9.>-]+\)/)) {
    name = substr(code, RSTART, RLENGTH - 1)
    sub(/.*[^A-Za-z0-9_]/, "", name)
    if (index(unordered, "|" name "|") > 0) complain(line, "iterates over the unordered container " name)
  }
  if (match(code, /[A-Za-z0-9_]+\.c?begin\(\)/)) {
    name = substr(code, RSTART, RLENGTH)
    sub(/\..*/, "", name)
    if (index(unordered, "|" name "|") > 0) complain(line, "iterates over the unordered container " name)
  }
}

# Members are declared in the header and walked in the .cc beside it, so its names are read first.
function read_header_of(path, header, line, text) {
  if (path !~ /\.cc$/) return
  header = path
  sub(/\.cc$/, ".h", header)
  while ((getline line < header) > 0) {
    text = bare(line)
    if (match(text, /unordered_(multi)?(map|set)<.*>[ \t]*[A-Za-z_0-9]+[ \t]*(;|=|\{|$)/)) {
      text = substr(text, RSTART, RLENGTH)
      sub(/[ \t]*(;|=|\{)?$/, "", text)
      sub(/.*[^A-Za-z0-9_]/, "", text)
      unordered = unordered "|" text "|"
    }
  }
  close(header)
  begin_file()
}

FNR == 1 {
  start_file()
  if (strict) read_header_of(FILENAME)
}

{
  columns = $0
  gsub(/[\200-\277]/, "", columns)  # of a character of several bytes only the first counts
  columns = length(columns)
  if (columns > max_columns) complain(FNR, "the line has " columns " columns, more than " max_columns)
  if (FNR == longest + 1) complain(FNR, "the file has more than " longest " lines")
  code = bare($0)
  if (strict) check_names(code, FNR)
  if (in_directive || code ~ /^[ \t]*#/)
    in_directive = code ~ /\\$/
  else
    count_braces(code, FNR)
}

END {
  if (files == 0) {
    print "tidy: no sources were found"
    found = 1
  }
  if (!found) print "tidy: " files + 0 " sources and " functions + 0 " functions, nothing found"
  exit found
}
