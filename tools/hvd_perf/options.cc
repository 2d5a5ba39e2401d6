// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/options.h"

#include <getopt.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "hvd/hvd.h"
#include "hvd_perf/values.h"

namespace hvd_perf {
namespace {

constexpr char kHelp[] =
    R"(hvd_perf: times libhvd's collectives. An iteration's time is the slowest rank's.

what     --op allreduce|allgather|broadcast|barrier   --dtype float32|float16|bfloat16|float64|int8|...|bool
         --reduce-op sum|average|min|max|product
sizes    --sizes 4,64K,1M    or   --min-bytes B --max-bytes B --factor F    (bytes of each rank's input)
ranks    --ranks N (N local processes are started)   --no-fork (be one rank of the job the environment describes)
         --pin | --no-pin (default: when ranks <= cores)   --rendezvous file|tcp
how      --fresh (default: each rank rewrites its data before every operation) | --back-to-back
         --buffers arena|private   --in-place (default) | --out-of-place
         --mode blocking|async   --window K (operations in flight, async)   --prepared (ids instead of names)
         --iters N   --warmup N   --check (default) | --no-check   --time-limit SECONDS
output   --json FILE|-
other    --init-bench N      time until the last of N started processes has returned from hvd_init   --repeats R
         --idle-bench S      CPU share of each rank during S idle seconds after init
         --memory-bench      resident memory that hvd_init adds to a process

algbw = bytes / time (allgather: bytes of the output); busbw = algbw x 2(n-1)/n for allreduce, (n-1)/n for allgather.
With --mode async the time is that of the whole window divided by its operations.
)";

struct Named {
  const char* name;
  int32_t value;
};
constexpr Named kOps[] = {
    {"allreduce", HVD_ALLREDUCE}, {"allgather", HVD_ALLGATHER}, {"broadcast", HVD_BROADCAST}, {"barrier", HVD_BARRIER}};
constexpr Named kTypes[] = {{"uint8", HVD_UINT8},     {"int8", HVD_INT8},        {"uint16", HVD_UINT16},
                            {"int16", HVD_INT16},     {"int32", HVD_INT32},      {"int64", HVD_INT64},
                            {"float16", HVD_FLOAT16}, {"float32", HVD_FLOAT32},  {"float64", HVD_FLOAT64},
                            {"bool", HVD_BOOL},       {"bfloat16", HVD_BFLOAT16}};
constexpr Named kReductions[] = {
    {"sum", HVD_SUM}, {"average", HVD_AVERAGE}, {"min", HVD_MIN}, {"max", HVD_MAX}, {"product", HVD_PRODUCT}};

template <size_t N>
bool Find(const Named (&table)[N], const char* name, int32_t* value, std::string* kept) {
  for (const Named& entry : table) {
    if (std::strcmp(entry.name, name) == 0) {
      *value = entry.value;
      *kept = name;
      return true;
    }
  }
  return false;
}

constexpr int kMostRanks = 1024;           // on one machine
constexpr int kMostTimes = 1'000'000'000;  // repetitions, seconds
constexpr uint64_t kMostBytes = 1ull << 40;

// "64K" -> 65536. False where the text is no size.
bool ParseSize(std::string_view text, uint64_t* size) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *size);
  if (error != std::errc() || *size > kMostBytes) return false;
  const std::string suffix(end, text.data() + text.size());
  for (const auto& [name, shift] : {std::pair{"K", 10}, {"M", 20}, {"G", 30}}) {
    if (suffix != name && suffix != name + std::string("iB")) continue;
    if (*size > kMostBytes >> shift) return false;
    *size <<= shift;
    return true;
  }
  return suffix.empty() || suffix == "B";
}

bool ParseSizes(const std::string& text, std::vector<uint64_t>* sizes) {
  sizes->clear();
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (!ParseSize(text.substr(at, comma - at), &sizes->emplace_back())) return false;
    at = comma + 1;
  }
  return true;
}

struct Range {
  uint64_t min = 0, max = 0;
  double factor = 4;
};

bool Choose(const char* text, const char* no, const char* yes, bool* value) {
  *value = std::strcmp(text, yes) == 0;
  return *value || std::strcmp(text, no) == 0;
}

bool Within(std::string_view text, int least, int most, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= least && *value <= most;
}

template <auto Member, auto Value>
bool Set(const char*, Options* o, Range*) {
  o->*Member = Value;
  return true;
}
template <auto Member, int Least = 1, int Most = kMostTimes>
bool Number(const char* text, Options* o, Range*) {
  return Within(text, Least, Most, &(o->*Member));
}

// One command line option. Apply returns false where `text` is no value for it.
struct Flag {
  const char* name;
  bool has_value;
  bool (*apply)(const char* text, Options* o, Range* range);
};

const Flag kFlags[] = {
    {"op", true, [](const char* t, Options* o, Range*) { return Find(kOps, t, &o->op, &o->op_name); }},
    {"dtype", true, [](const char* t, Options* o, Range*) { return Find(kTypes, t, &o->dtype, &o->dtype_name); }},
    {"reduce-op", true,
     [](const char* t, Options* o, Range*) { return Find(kReductions, t, &o->reduce_op, &o->reduce_op_name); }},
    {"sizes", true, [](const char* t, Options* o, Range*) { return ParseSizes(t, &o->sizes); }},
    {"min-bytes", true, [](const char* t, Options*, Range* r) { return ParseSize(t, &r->min) && r->min > 0; }},
    {"max-bytes", true, [](const char* t, Options*, Range* r) { return ParseSize(t, &r->max) && r->max > 0; }},
    {"factor", true, [](const char* t, Options*, Range* r) { return (r->factor = std::atof(t)) > 1; }},
    {"ranks", true, Number<&Options::ranks, 1, kMostRanks>},
    {"no-fork", false, Set<&Options::fork, false>},
    {"pin", false, Set<&Options::pin, 1>},
    {"no-pin", false, Set<&Options::pin, 0>},
    {"rendezvous", true, [](const char* t, Options* o, Range*) { return Choose(t, "file", "tcp", &o->tcp_store); }},
    {"fresh", false, Set<&Options::fresh, true>},
    {"back-to-back", false, Set<&Options::fresh, false>},
    {"buffers", true, [](const char* t, Options* o, Range*) { return Choose(t, "private", "arena", &o->arena); }},
    {"in-place", false, Set<&Options::in_place, true>},
    {"out-of-place", false, Set<&Options::in_place, false>},
    {"mode", true, [](const char* t, Options* o, Range*) { return Choose(t, "blocking", "async", &o->async); }},
    {"window", true, Number<&Options::window>},
    {"prepared", false, Set<&Options::prepared, true>},
    {"iters", true, Number<&Options::iters>},
    {"warmup", true, Number<&Options::warmup, 0>},
    {"check", false, Set<&Options::check, true>},
    {"no-check", false, Set<&Options::check, false>},
    {"time-limit", true, Number<&Options::time_limit_s>},
    {"json", true, [](const char* t, Options* o, Range*) { return !(o->json = t).empty(); }},
    {"init-bench", true,
     [](const char* t, Options* o, Range*) { return (o->bench = Bench::kInit, Within(t, 1, kMostRanks, &o->ranks)); }},
    {"repeats", true, Number<&Options::repeats>},
    {"idle-bench", true,
     [](const char* t, Options* o, Range*) { return (o->bench = Bench::kIdle, (o->idle_s = std::atof(t)) > 0); }},
    {"memory-bench", false, Set<&Options::bench, Bench::kMemory>},
};
constexpr int kFirstFlag = 256;  // getopt's values below are characters

std::vector<option> GetoptTable() {
  std::vector<option> table;
  for (const Flag& flag : kFlags) {
    table.push_back({flag.name, flag.has_value, nullptr, kFirstFlag + static_cast<int>(table.size())});
  }
  table.push_back({"help", 0, nullptr, 'h'});
  table.push_back({nullptr, 0, nullptr, 0});
  return table;
}

}  // namespace

std::optional<Options> ParseOptions(int argc, char** argv, int* exit_code) {
  Options o;
  Range range;
  *exit_code = 2;
  const std::vector<option> table = GetoptTable();
  for (int key; (key = getopt_long(argc, argv, "h", table.data(), nullptr)) != -1;) {
    if (key == 'h') {
      std::fputs(kHelp, stdout);
      *exit_code = 0;
      return std::nullopt;
    }
    if (key == '?') return std::nullopt;  // getopt has explained
    const Flag& flag = kFlags[key - kFirstFlag];
    if (!flag.apply(optarg, &o, &range)) {
      std::fprintf(stderr, "hvd_perf: '%s' is no value for --%s; see --help\n", optarg, flag.name);
      return std::nullopt;
    }
  }
  if (optind != argc) {
    std::fprintf(stderr, "hvd_perf: unexpected argument '%s'; see --help\n", argv[optind]);
    return std::nullopt;
  }
  if (range.max == 0) range.max = std::max<uint64_t>(range.min, 16u << 20);
  if (range.min == 0) range.min = 4;
  if (o.sizes.empty()) {
    for (double size = range.min; size <= range.max; size *= range.factor) o.sizes.push_back(size);
  }
  if (o.op == HVD_BARRIER) o.sizes = {0};
  for (uint64_t& size : o.sizes) size -= size % ElementSize(o.dtype);
  return o;
}

}  // namespace hvd_perf
