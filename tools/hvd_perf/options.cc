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

#include "hvd/base/launcher.h"
#include "hvd/hvd.h"
#include "hvd_perf/values.h"

namespace hvd_perf {
namespace {

constexpr char kHelp[] =
    R"(hvd_perf: times libhvd's collectives. An iteration's time is the slowest rank's.

what     --op allreduce|allgather|broadcast|alltoall|reducescatter|barrier   --reduce-op sum|average|min|max|product
         --dtype float32|float16|bfloat16|float64|int8|...|bool   --wire none|float16|bfloat16 (as which it travels)
sizes    --sizes 4,64K,1M    or   --min-bytes B --max-bytes B --factor F
         bytes of a block: each rank's input; alltoall: what one rank sends to one; reducescatter: each rank's output
ranks    --ranks N (default 2: local processes that are started)
         under horovodrun, mpirun, srun or torchrun this process is one rank of their job; --fork | --no-fork decide it
         --pin | --no-pin (default: when ranks <= cores)   --rendezvous file|tcp
how      --fresh (default: each rank rewrites its data before every operation) | --back-to-back
         --buffers arena|private|mixed (private in, arena out)   --in-place (default but for mixed) | --out-of-place
         --offset malloc|N   private buffers lie where malloc puts them (default), or begin N bytes after a page's begin
         --new-pages   the output's pages are new to the process at each operation, as those of a new block of malloc
         --mode blocking|async   --window K (operations in flight, async)   --prepared (ids instead of names)
         --iters N   --warmup N   --check (default) | --no-check   --time-limit SECONDS
output   --json FILE|-
training --train resnet50|vgg16|bert-base   reduces this network's gradients, each as soon as a backward pass made it,
         while the rest of the step is computed   --compute wait|busy (elsewhere, or on the ranks' cores; default: both)
         --ratio R (time of compute for each time of the reduction alone; default: 4, 1.2, 2)   --iters N steps
other    --init-bench N      time until the last of N started processes has returned from hvd_init   --repeats R
         --idle-bench S      CPU share of each rank during S idle seconds after init
         --memory-bench      resident memory that hvd_init adds to a process

algbw = bytes / time, with the bytes of all n blocks for allgather, alltoall and reducescatter;
busbw = algbw x 2(n-1)/n for allreduce, (n-1)/n for those three.
With --mode async the time is that of the whole window divided by its operations.
hidden = the share of the reduction that does not make the step longer; efficiency = compute alone / step. Both are
printed as measured; above 100 % they are noise, and marked so.
)";

struct Named {
  const char* name;
  int32_t value;
};
constexpr Named kOps[] = {{"allreduce", HVD_ALLREDUCE}, {"allgather", HVD_ALLGATHER},
                          {"broadcast", HVD_BROADCAST}, {"alltoall", HVD_ALLTOALL},
                          {"barrier", HVD_BARRIER},     {"reducescatter", HVD_REDUCESCATTER}};
constexpr Named kBuffers[] = {{"arena", static_cast<int32_t>(Buffers::kArena)},
                              {"private", static_cast<int32_t>(Buffers::kPrivate)},
                              {"mixed", static_cast<int32_t>(Buffers::kMixed)}};
constexpr Named kTypes[] = {{"uint8", HVD_UINT8},     {"int8", HVD_INT8},        {"uint16", HVD_UINT16},
                            {"int16", HVD_INT16},     {"int32", HVD_INT32},      {"int64", HVD_INT64},
                            {"float16", HVD_FLOAT16}, {"float32", HVD_FLOAT32},  {"float64", HVD_FLOAT64},
                            {"bool", HVD_BOOL},       {"bfloat16", HVD_BFLOAT16}};
constexpr Named kReductions[] = {
    {"sum", HVD_SUM}, {"average", HVD_AVERAGE}, {"min", HVD_MIN}, {"max", HVD_MAX}, {"product", HVD_PRODUCT}};

constexpr Named kWires[] = {{"none", 0}, {"float16", HVD_WIRE_FLOAT16}, {"bfloat16", HVD_WIRE_BFLOAT16}};

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

// What is decided only when all options are known.
struct Pending {
  uint64_t min = 0, max = 0;
  double factor = 4;
  bool in_place = false, ranks = false;  // was given
  std::optional<bool> fork;
};

bool Choose(const char* text, const char* no, const char* yes, bool* value) {
  *value = std::strcmp(text, yes) == 0;
  return *value || std::strcmp(text, no) == 0;
}

bool Within(std::string_view text, int least, int most, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= least && *value <= most;
}

bool MoreThan(double least, std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value > least && *value <= kMostTimes;
}

template <auto Member, auto Value>
bool Set(const char*, Options* o, Pending*) {
  o->*Member = Value;
  return true;
}
template <auto Member, int Least = 1, int Most = kMostTimes>
bool Number(const char* text, Options* o, Pending*) {
  return Within(text, Least, Most, &(o->*Member));
}

bool TakeOp(const char* text, Options* o, Pending*) { return Find(kOps, text, &o->op, &o->op_name); }

// One command line option. Apply returns false where `text` is no value for it.
struct Flag {
  const char* name;
  bool has_value;
  bool (*apply)(const char* text, Options* o, Pending* pending);
};

const Flag kFlags[] = {
    {"op", true, TakeOp},
    {"ops", true, TakeOp},  // as python -m horovod.benchmark calls it
    {"dtype", true, [](const char* t, Options* o, Pending*) { return Find(kTypes, t, &o->dtype, &o->dtype_name); }},
    {"reduce-op", true,
     [](const char* t, Options* o, Pending*) { return Find(kReductions, t, &o->reduce_op, &o->reduce_op_name); }},
    {"wire", true, [](const char* t, Options* o, Pending*) { return Find(kWires, t, &o->wire, &o->wire_name); }},
    {"sizes", true, [](const char* t, Options* o, Pending*) { return ParseSizes(t, &o->sizes); }},
    {"min-bytes", true, [](const char* t, Options*, Pending* p) { return ParseSize(t, &p->min) && p->min > 0; }},
    {"max-bytes", true, [](const char* t, Options*, Pending* p) { return ParseSize(t, &p->max) && p->max > 0; }},
    {"factor", true, [](const char* t, Options*, Pending* p) { return MoreThan(1, t, &p->factor); }},
    {"ranks", true,
     [](const char* t, Options* o, Pending* p) { return (p->ranks = true, Within(t, 1, kMostRanks, &o->ranks)); }},
    {"fork", false, [](const char*, Options*, Pending* p) { return (p->fork = true, true); }},
    {"no-fork", false, [](const char*, Options*, Pending* p) { return (p->fork = false, true); }},
    {"pin", false, Set<&Options::pin, 1>},
    {"no-pin", false, Set<&Options::pin, 0>},
    {"rendezvous", true, [](const char* t, Options* o, Pending*) { return Choose(t, "file", "tcp", &o->tcp_store); }},
    {"fresh", false, Set<&Options::fresh, true>},
    {"back-to-back", false, Set<&Options::fresh, false>},
    {"buffers", true,
     [](const char* t, Options* o, Pending*) {
       int32_t value = 0;
       const bool known = Find(kBuffers, t, &value, &o->buffers_name);
       o->buffers = static_cast<Buffers>(value);
       return known;
     }},
    {"in-place", false, [](const char*, Options* o, Pending* p) { return p->in_place = o->in_place = true; }},
    {"out-of-place", false, Set<&Options::in_place, false>},
    {"new-pages", false, Set<&Options::new_pages, true>},
    {"offset", true,
     [](const char* t, Options* o, Pending*) {
       if (std::strcmp(t, "malloc") != 0) return Within(t, 0, 4095, &o->offset);
       o->offset = kAsMalloc;
       return true;
     }},
    {"mode", true, [](const char* t, Options* o, Pending*) { return Choose(t, "blocking", "async", &o->async); }},
    {"window", true, Number<&Options::window>},
    {"prepared", false, Set<&Options::prepared, true>},
    {"iters", true, Number<&Options::iters>},
    {"warmup", true, Number<&Options::warmup, 0>},
    {"check", false, Set<&Options::check, true>},
    {"no-check", false, Set<&Options::check, false>},
    {"time-limit", true, Number<&Options::time_limit_s>},
    {"json", true, [](const char* t, Options* o, Pending*) { return !(o->json = t).empty(); }},
    {"train", true,
     [](const char* t, Options* o, Pending*) {
       return (o->bench = Bench::kTrain, o->model = FindModel(t)) != nullptr;
     }},
    {"compute", true,
     [](const char* t, Options* o, Pending*) {
       const bool known = Choose(t, "wait", "busy", &o->busy);
       o->wait = !o->busy;
       return known;
     }},
    {"ratio", true, [](const char* t, Options* o, Pending*) { return MoreThan(0, t, &o->ratio); }},
    {"init-bench", true,
     [](const char* t, Options* o, Pending*) {
       return (o->bench = Bench::kInit, Within(t, 1, kMostRanks, &o->ranks));
     }},
    {"repeats", true, Number<&Options::repeats>},
    {"idle-bench", true,
     [](const char* t, Options* o, Pending*) { return (o->bench = Bench::kIdle, MoreThan(0, t, &o->idle_s)); }},
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

// The variable that makes this process a rank of somebody's job; empty: none. What the library would refuse counts as
// one: hvd_init says why.
std::string LauncherVariable() {
  if (std::getenv("HOROVOD_RANK") != nullptr) return "HOROVOD_RANK";
  const hvd::Result<hvd::Launcher> found = hvd::FindLauncher([](const char* name) { return std::getenv(name); });
  if (!found) return "what a launcher sets";
  return found->missing.empty() ? found->rank_variable : "RANK";
}

// "" or why the options do not go together. Completes them.
std::string Complete(const Pending& pending, Options* o) {
  const std::string launched = LauncherVariable();
  o->fork = pending.fork.value_or(launched.empty());
  if (!o->fork) {
    const std::string why = pending.fork ? "with --no-fork" : "under a launcher (" + launched + " is set)";
    const std::string cure = pending.fork ? "" : ", or say --fork to start processes here";
    if (pending.ranks) return "--ranks has no meaning " + why + ": the job has its own number; leave it away" + cure;
    if (o->bench != Bench::kCollective && o->bench != Bench::kTrain) {
      return "--init-bench, --idle-bench and --memory-bench start their own processes, which is not possible " + why +
             cure;
    }
  }
  if (o->wire != 0) {
    if (o->bench != Bench::kCollective) return "--wire has no meaning for --train and the other benchmarks";
    if (o->op != HVD_ALLREDUCE) return "--wire is for --op allreduce alone, not for " + o->op_name;
    if (o->dtype != HVD_FLOAT32 && o->dtype != HVD_FLOAT64) {
      return "--wire is for --dtype float32 and float64; others travel as they are";
    }
  }
  if (o->bench == Bench::kTrain) {
    if (o->buffers == Buffers::kMixed) return "--train averages in place: --buffers is arena or private";
    if (o->ratio == 0) o->ratio = o->model->ratio;
    return "";
  }
  const bool other_shape = o->op == HVD_ALLGATHER || o->op == HVD_ALLTOALL || o->op == HVD_REDUCESCATTER;
  if (pending.in_place && other_shape) return "--in-place is not possible for --op " + o->op_name;
  if (pending.in_place && o->buffers == Buffers::kMixed) return "--buffers mixed is out of place by nature";
  if (other_shape || o->buffers == Buffers::kMixed) o->in_place = false;
  if (o->new_pages && (o->in_place || o->buffers != Buffers::kPrivate || o->op == HVD_BARRIER)) {
    return "--new-pages is for --out-of-place with --buffers private";
  }
  const uint64_t least = pending.min == 0 ? 4 : pending.min;
  const uint64_t most = pending.max == 0 ? std::max<uint64_t>(least, 16u << 20) : pending.max;
  if (least > most) return "--min-bytes is more than --max-bytes";
  if (o->sizes.empty()) {
    for (double size = least; size <= most; size *= pending.factor) o->sizes.push_back(size);
  }
  if (o->op == HVD_BARRIER) {
    o->sizes = {0};
    return "";
  }
  const uint64_t element = ElementSize(o->dtype);
  for (uint64_t& size : o->sizes) {
    if (size < element) {
      return "a size of " + std::to_string(size) + " bytes is less than one " + o->dtype_name + "; see --sizes";
    }
    size -= size % element;
  }
  return "";
}

}  // namespace

std::optional<Options> ParseOptions(int argc, char** argv, int* exit_code) {
  Options o;
  Pending pending;
  *exit_code = 2;
  const std::vector<option> table = GetoptTable();
  for (int key; (key = getopt_long(argc, argv, "h", table.data(), nullptr)) != -1;) {
    if (key == 'h') {
      std::fputs(kHelp, stdout);
      *exit_code = 0;
      return std::nullopt;
    }
    if (key == '?') return std::nullopt;  // getopt has explained which
    const Flag& flag = kFlags[key - kFirstFlag];
    if (!flag.apply(optarg, &o, &pending)) {
      std::fprintf(stderr, "hvd_perf: '%s' is no value for --%s; see --help\n", optarg, flag.name);
      return std::nullopt;
    }
  }
  if (optind != argc) {
    std::fprintf(stderr, "hvd_perf: unexpected argument '%s'; see --help\n", argv[optind]);
    return std::nullopt;
  }
  if (const std::string wrong = Complete(pending, &o); !wrong.empty()) {
    std::fprintf(stderr, "hvd_perf: %s\n", wrong.c_str());
    return std::nullopt;
  }
  return o;
}

}  // namespace hvd_perf
