# The rules of ci/checks/keys for one C++ file after the other; loaded after source.awk. FILENAME is a path from the root.
# `readers` has the names of the files that may read the key of a program, with spaces between them.
BEGIN {
  count = split(readers, names)
  for (i = 1; i <= count; i++) may_read[names[i]] = 1
}

function complain(what) {
  print FILENAME ":" FNR ": " what
  found = 1
}

FNR == 1 {
  begin_file()
  files++
}

{
  code = bare($0)
  if (FILENAME in may_read) next
  if (code ~ /(^|[^A-Za-z0-9_])program(_|\(\))?(\.|->)key([^A-Za-z0-9_(]|$)/)
    complain("reads the key of a program, which hashes values and decides nothing: make the choice a field of the Case")
  else if (code ~ /(^|[^A-Za-z0-9_])key_?[ )]*(>>|%|\/|\^[^=]|&[^&=A-Za-z_*])/ ||
           code ~ /(^|[^A-Za-z0-9_])key_?[ )]* & /)
    complain("takes bits of a key, which hashes values and decides nothing: make the choice a field of the Case")
}

END {
  if (!found) print "keys: " files + 0 " sources, nothing found"
  exit found
}
