#!/usr/bin/env bash
# new_test.sh PROGRAM cpp|python FOLDER: a project that `lockstep new` writes builds, and its tests pass; with a mistake in its
# reducer they fail, and say what is wrong. FOLDER has the files from which it is written. Exit code 77, and a line that says
# why, where there is no Python with torch and pytest.
program=$(realpath -- "$1")
kind=$2
files=$(realpath -- "$3")
if [[ $kind == python ]]; then
  # shellcheck source=properties/subject/torch/python.sh
  source "$files/../subject/torch/python.sh"
  "$python" -c 'import pytest' 2>/dev/null || { echo "skipped: $python has no pytest (ci/setup --torch installs Debian's)" && exit 77; }
fi
# shellcheck source=properties/cli/expect.sh
source "$files/../cli/expect.sh"

expect 0 "mine/README.md" "$program" new "$kind" mine
(cd mine && find . -type f | sort) >written
grep -q '^./.github/workflows/lockstep.yml$' written || fail "there is no workflow for GitHub"
grep -q '^./.gitlab-ci.yml$' written || fail "there is no pipeline for GitLab"
cmp mine/README.md "$files/$kind/README.md" || fail "the README is another"

# What cannot be written is refused, and nothing is overwritten.
echo mine >mine/README.md
expect 1 "the folder 'mine' is not empty" "$program" new "$kind" mine
[[ $(cat mine/README.md) == mine ]] || fail "a file was overwritten"
expect 1 "'written' is a file" "$program" new "$kind" written
expect 1 "cannot be made: Not a directory" "$program" new "$kind" written/below
expect 1 "rust not in {cpp,python}" "$program" new rust other
expect 1 "folder is required" "$program" new "$kind"
mkdir empty
expect 0 "empty/README.md" "$program" new "$kind" empty

if [[ $kind == cpp ]]; then
  build() { cmake -S "$1" -B "$1/build" "-DLOCKSTEP=$program" >configure.log && cmake --build "$1/build"; }
  sed -i 's/--cases 5000/--cases 500/; s/--cases 100/--cases 10/' mine/CMakeLists.txt
  expect 0 "Built target reducer" build mine
  expect 0 "100% tests passed" ctest --test-dir mine/build --output-on-failure
  [[ -s mine/lockstep-out/sim.xml ]] || fail "there is no report"
  # The mistake: the average is a sum.
  sed -i 's|T(1) / static_cast<T>(world)|T(1)|' mine/flat_reducer.cc
  expect 0 "Built target reducer" build mine
  expect 8 "FAIL: wrong bits" ctest --test-dir mine/build --output-on-failure
  expect 1 "There is no program lockstep in PATH" env PATH=/usr/bin:/bin bash -c 'cmake -S empty -B none 2>&1 | grep "There is no program" >&2; exit 1'
else
  module=$(dirname -- "$program")/lockstep-python
  test_it() { mkdir -p "$1/lockstep-out" && env -C "$1" PYTHONPATH="$module" "$python" -m pytest -q -p lockstep.pytest_plugin --basetemp=lockstep-out/cases || return 9; }
  sed -i 's/cases=200/cases=20, least=20/' mine/tests/test_wrapper.py
  expect 0 "1 passed" test_it mine
  sed -i 's|parameter.grad /= dist.get_world_size()|pass|' mine/wrapper.py
  expect 9 "FAIL: wrong bits" test_it mine
  [[ -n $(find mine/lockstep-out -name 'gloo-1-*.json') ]] || fail "the failing case is not kept"
fi
finish "a new project works as it is, and its tests find a mistake"
