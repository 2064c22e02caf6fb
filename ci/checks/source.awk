# Functions for checks of C++ sources, as POSIX awk: loaded with -f before a check of its own.
#
#   bare(line)  the line without comments and without what string and character literals hold. Lines of one file come in
#               order; call begin_file() first. Literals are left as "" and ''. Raw strings and block comments may
#               span lines.
#   blank(n)    n spaces
function begin_file() {
  source_in_comment = 0
  source_raw_end = ""
}

function blank(n, text) {
  text = ""
  while (n-- > 0) text = text " "
  return text
}

function bare(line, out, at, head, delimiter) {
  out = ""
  while (length(line) > 0) {
    if (source_in_comment) {
      at = index(line, "*/")
      if (at == 0) return out
      line = substr(line, at + 2)
      source_in_comment = 0
      continue
    }
    if (source_raw_end != "") {
      at = index(line, source_raw_end)
      if (at == 0) return out
      line = substr(line, at + length(source_raw_end))
      source_raw_end = ""
      continue
    }
    # The next thing that is not plain code: a comment, a string or a character.
    if (!match(line, /\/\/|\/\*|"|'/)) return out line
    at = RSTART
    head = substr(line, at, 2)
    out = out substr(line, 1, at - 1)
    if (head == "//") return out
    if (head == "/*") {
      line = substr(line, at + 2)
      source_in_comment = 1
    } else if (substr(line, at, 1) == "\"") {
      line = substr(line, at + 1)
      if (out ~ /(^|[^A-Za-z0-9_])(u8|u|U|L)?R$/ && match(line, /^[^(]*\(/)) {
        delimiter = substr(line, 1, RLENGTH - 1)
        line = substr(line, RLENGTH + 1)
        source_raw_end = ")" delimiter "\""
        out = out "\"\""
      } else {
        out = out "\"\""
        line = match(line, /^([^"\\]|\\.)*"/) ? substr(line, RLENGTH + 1) : ""
      }
    } else if (out ~ /[0-9A-Fa-f]$/ && substr(line, at + 1, 1) ~ /[0-9A-Fa-f]/) {
      line = substr(line, at + 1)  # a digit separator, as in 100'000
    } else {
      line = substr(line, at + 1)
      out = out "''"
      line = match(line, /^([^'\\]|\\.[^']*)'/) ? substr(line, RLENGTH + 1) : ""
    }
  }
  return out
}
