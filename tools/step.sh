# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For scripts that source it: commands whose output nobody wants to read while all goes well. Set `program` before.

say() { printf '%s: %s\n' "$program" "$*"; }
die() { say "$*" >&2; exit 1; }

# step WHAT COMMAND...: runs a command with its output in build/PROGRAM.log. A line every five seconds says how long the
# command has run and what it printed last. If the command fails, everything that it printed follows.
step() {
  local what=$1 log=build/${program//[^a-z0-9_-]/-}.log start=$SECONDS runner last next=5
  shift
  say "$what"
  mkdir -p build
  "$@" > "$log" 2>&1 &
  runner=$!
  while kill -0 "$runner" 2> /dev/null; do
    if ((SECONDS - start >= next)); then
      # The state of a build is in ninja's last line that begins with [n/m].
      last=$(tail -c 4000 "$log" | tr '\r' '\n' | awk '/^\[[0-9]+\// {step = $0} NF {last = $0} END {print step ? step : last}')
      printf '%s:   %3d s  %s\n' "$program" "$((SECONDS - start))" "${last:0:100}"
      next=$((SECONDS - start + 5))
    fi
    sleep 1
  done
  wait "$runner" || { cat "$log" >&2; die "$what: failed"; }
}
