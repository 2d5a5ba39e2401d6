#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzzer of the fuzz preset for some seconds, two at a time. New inputs go to build/fuzz/corpus.
#
#   tests/fuzz/run.sh SECONDS
set -euo pipefail
cd "$(dirname "$0")/../.."

fuzz() {
  local name
  name=$(basename "$1")
  mkdir -p "build/fuzz/corpus/$name"
  # New inputs go to the first folder; what tests/fuzz/corpus keeps is run first.
  "$1" -max_total_time="$2" -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ -verbosity=0 -print_final_stats=1 \
    "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" > "build/fuzz/$name.log" 2>&1 ||
    { printf -- '-- %s failed\n' "$name"; cat "build/fuzz/$name.log"; return 1; }
  printf -- '-- %s: %s executions\n' "$name" "$(awk '/number_of_executed_units/ {print $2}' "build/fuzz/$name.log")"
}
export -f fuzz

find build/fuzz/tests/fuzz -maxdepth 1 -type f -executable | sort | xargs -P 2 -I{} bash -c 'fuzz {} '"$1"
