#!/usr/bin/env bash
# Tests what `lockstep completion` and `lockstep man` print: it has everything that --help lists, bash completes with it,
# and zsh and groff, where they are installed, read it without an error.
# shell_test.sh LOCKSTEP
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
fail() {
  echo "shell_test.sh: $*" >&2
  exit 1
}

"$program" completion bash >"$work/lockstep.bash"
"$program" completion zsh >"$work/_lockstep"
"$program" man >"$work/lockstep.1"

# Every command and option of --help. Names in roff have a backslash before each hyphen.
sed 's/\\-/-/g' "$work/lockstep.1" >"$work/man.text"
commands=(fuzz replay shrink show generate export diagnose eval exhaust matrix explain-bits scaling component doctor "corpus check"
  "campaign report" "campaign merge" completion man)
for command in "${commands[@]}"; do
  # shellcheck disable=SC2086  # a command may be two words
  options=$("$program" $command --help | grep -oE '^  (-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+' | grep -vx -- '--help' || true)
  grep -qF -- "lockstep $command" "$work/man.text" || fail "the manual page lacks the command $command"
  grep -qF -- "'$command')" "$work/_lockstep" || fail "zsh does not know the command $command"
  for option in $options; do
    grep -qE -- "$option\\b" "$work/man.text" || fail "the manual page lacks $option of $command"
    grep -qE -- "'$option\\[" "$work/_lockstep" || fail "zsh does not know $option of $command"
  done
done

# completed WORD...: what bash offers for the last word.
completed() {
  bash -c 'source "$1"; shift; COMP_WORDS=(lockstep "$@"); COMP_CWORD=$#; _lockstep; printf "%s\n" "${COMPREPLY[@]}"' \
    bash "$work/lockstep.bash" "$@"
}
[[ $(completed fu) == fuzz ]] || fail "bash completes 'fu' to: $(completed fu)"
[[ $(completed fuzz --trans) == --transport ]] || fail "bash completes 'fuzz --trans' to: $(completed fuzz --trans)"
[[ $(completed fuzz --lane gl) == gloo ]] || fail "bash completes 'fuzz --lane gl' to: $(completed fuzz --lane gl)"
[[ $(completed corpus ch) == check ]] || fail "bash completes 'corpus ch' to: $(completed corpus ch)"
[[ -z $(completed fuzz --seed '') ]] || fail "bash offers something for a number: $(completed fuzz --seed '')"
(
  cd "$work" && touch some-case.json
  [[ $(completed replay some-c) == some-case.json ]] || fail "bash does not complete case files"
)

if command -v zsh >/dev/null; then
  zsh -n "$work/_lockstep" || fail "zsh cannot read its script"
fi
if command -v groff >/dev/null; then
  warnings=$(groff -man -ww -z "$work/lockstep.1" 2>&1) || fail "groff cannot read the manual page"
  [[ -z $warnings ]] || fail "groff warns: $warnings"
fi
if "$program" completion fish >"$work/out" 2>&1; then fail "there is a completion for fish"; fi
grep -q "fish" "$work/out" || fail "the error does not name the shell"
