// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which algorithm moves the data of an operation: a table of lines, of which the first that fits is taken. The figures
// are in table.cc and nowhere else; HOROVOD_ALGORITHMS changes them (change.h); `horovodrun --algorithms` prints them
// (table_text.h).
//
// scope     How the members of a process set reach each other.
// location  Where a member's data lies while the others read it: the algorithms of one host. Each member has its own,
//           which its mark tells the others.
//
// The algorithms between hosts decide which messages there are, so all members must choose alike: by what they all know
// (the operation, the set's members, bytes that are equal on all of them) and from tables that are equal.
//
// Thread safety: a table is constant once it is made.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/base/types.h"

namespace hvd::algorithms {

enum class Scope {
  kShm,      // all members on one host, by shared memory
  kNetwork,  // messages: one member on each host, or a host without shared memory
  kMixed,    // several hosts, of which at least one has several members
};

enum class Algorithm {
  // Locations.
  kTiny,
  kDirect,
  kCopied,
  kInline,
  kCma,
  kStaged,
  // By messages.
  kHierarchicalReduce,
  kOneStep,
  kDirectReduce,
  kExchange,
  kTree,
  kDirectScatter,
};

inline constexpr uint64_t kNoLimit = UINT64_MAX;
// What fits into the cache line of a mark.
inline constexpr size_t kTinyBytes = 32;
// An allreduce beyond this that nothing else waits for is staged where it could be inline: every member reduces a slice
// of it, and the second round costs less than that saves. Of many at a time the rounds would cost more.
inline constexpr size_t kMostAloneInline = 4 << 10;

// Both ends belong to it.
struct Range {
  uint64_t least = 0;
  uint64_t most = kNoLimit;
  bool Has(uint64_t value) const { return value >= least && value <= most; }
  bool empty() const { return least > most; }
  bool operator==(const Range&) const = default;
};

// What a range of bytes counts.
enum class Measure {
  kData,  // of one member
  kSent,  // that times all others
};

// 0: it has none of that kind.
struct Parameters {
  size_t chunk = 0;   // bytes by which data is moved through, or worked on in, shared memory
  size_t slice = 0;   // bytes of one message
  size_t flight = 0;  // bytes of a member that are under way at a time
  bool operator==(const Parameters&) const = default;
};

struct Line {
  OpKind op = OpKind::kAllreduce;
  Scope scope = Scope::kShm;
  Algorithm algorithm = Algorithm::kStaged;
  Range bytes;
  Measure measure = Measure::kData;
  Range members;  // of the process set
  Parameters parameters;
  bool last_resort = false;  // takes any size, and stays below whatever is changed
  bool on_trial = false;     // taken where it proves faster than what would be taken without it
  bool operator==(const Line&) const = default;
};

// A line for a process set of known size: bytes are those of one member.
struct Choice {
  Algorithm algorithm = Algorithm::kStaged;
  Range bytes;
  Parameters parameters;
  bool on_trial = false;
};

// Figures that other settings give.
struct Limits {
  size_t eager_bytes = 64 << 10;  // HOROVOD_EAGER_LIMIT
  size_t chunk_bytes = 64 << 10;  // HOROVOD_CHUNK_BYTES
};

// Chunks and slices: below that, headers and counters cost more than the data; above, nothing is in flight at a time.
// Those of whole cache lines have one writer each.
inline constexpr uint64_t kLeastParameter = 4 << 10;
inline constexpr uint64_t kMostParameter = 64 << 20;
inline constexpr uint64_t kParameterUnit = 64;

// How a number of ranks bounds the eager limit: every rank has room for so much data of every other.
struct EagerLimit {
  int most_ranks;
  size_t bytes;
};
std::span<const EagerLimit> EagerLimits();
// For a job of so many ranks whose users ask for these. A negative eager limit is by ranks; it is never above a chunk,
// which has whole cache lines.
Limits LimitsFor(int ranks, int64_t eager_limit, int64_t chunk_bytes);

class Table {
 public:
  // The measured figures.
  explicit Table(const Limits& limits = {});
  // With the changes that HOROVOD_ALGORITHMS asks for. kInvalidArgument: names the entry, and what is known.
  static Result<Table> Make(const Limits& limits, std::string_view changes);

  const std::vector<Line>& lines() const { return lines_; }
  // The same lines with other sizes: chunks and slices are so many percent of these, and less data is inline. Results
  // have the same bits.
  Table Tuned(int chunk_percent, size_t eager_bytes) const;
  // The lines for a process set of so many members, in their order. The last one takes any size.
  std::vector<Choice> For(OpKind op, Scope scope, int members) const;

 private:
  std::vector<Line> lines_;
};

// The first that takes so many bytes.
const Choice& Pick(std::span<const Choice> choices, size_t bytes);

// The operations that have lines, in the order in which they are shown.
std::span<const OpKind> Operations();
std::span<const Scope> Scopes();
// As users write them.
std::string_view WordFor(OpKind op);
std::string_view WordFor(Scope scope);
std::string_view WordFor(Algorithm algorithm);

}  // namespace hvd::algorithms
