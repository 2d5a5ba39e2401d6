// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/agreement_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <functional>

#include "hvd/controller/describe.h"

namespace hvd::controller {
namespace {

using Answer = std::optional<std::string>;
using OpMask = uint32_t;
// Prints what one member has.
using Show = std::function<std::string(const Signature&)>;
// Whether two members agree.
using Same = std::function<bool(const Signature&, const Signature&)>;

constexpr OpMask Bit(OpKind op) { return 1u << static_cast<int>(op); }
constexpr OpMask kAllOps = ~0u;
constexpr OpMask kReductions = Bit(OpKind::kAllreduce) | Bit(OpKind::kReducescatter);
constexpr OpMask kGathers = Bit(OpKind::kAllgather) | Bit(OpKind::kAlltoall);

const Signature& First(const Proposal& p) { return p.signatures.front(); }

// The first member that differs from the first one.
const Signature* Odd(const Proposal& p, const Same& same) {
  const auto at =
      std::find_if(p.signatures.begin(), p.signatures.end(), [&](const Signature& s) { return !same(First(p), s); });
  return at == p.signatures.end() ? nullptr : &*at;
}

bool IsAdasum(const Signature& s) { return s.op == OpKind::kAllreduce && s.reduce_op == ReduceOp::kAdasum; }

// Adasum is an operation of its own to those who read messages.
std::string_view NameOfOp(const Signature& s) { return IsAdasum(s) ? "ADASUM" : NameOf(s.op); }

std::string Lower(std::string_view word) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

bool SameOp(const Signature& a, const Signature& b) { return a.op == b.op && IsAdasum(a) == IsAdasum(b); }

// "... for ALLREDUCE of tensor 'x' in process set 2."
std::string Where(const Proposal& p) {
  if (ChangesProcessSets(First(p).op) && !Odd(p, SameOp)) return fmt::format("in {}.", Lower(NameOfOp(First(p))));
  const std::string op = Odd(p, SameOp) ? "" : fmt::format("{} of ", NameOfOp(First(p)));
  return fmt::format("for {}tensor {} in process set {}.", op, Quote(p.name), p.process_set);
}

std::string Listing(const Proposal& p, const Show& show) {
  return fmt::format("{}, {}", DescribeValues(p.ranks, [&](size_t i) { return show(p.signatures[i]); }), Where(p));
}

// The common form: `key`: One rank `verb` A, but another rank `verb` B: who has what, where.
std::string Mismatch(const Proposal& p, std::string_view key, std::string_view verb, const Signature& odd,
                     const Show& show, const Show& list) {
  return fmt::format("{}: One rank {} {}, but another rank {} {}: {}", key, verb, show(First(p)), verb, show(odd),
                     Listing(p, list));
}

Answer Compare(const Proposal& p, std::string_view key, std::string_view verb, const Same& same, const Show& show) {
  const Signature* odd = Odd(p, same);
  if (odd == nullptr) return {};
  return Mismatch(p, key, verb, *odd, show, show);
}

std::string ShowShape(const Signature& s) { return ToString(s.shape); }

bool IsHalf(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16; }

Answer DTypes(const Proposal& p) {
  const Same same = [](auto& a, auto& b) { return a.dtype == b.dtype; };
  Answer answer =
      Compare(p, "Mismatched data types", "had type", same, [](auto& s) { return std::string(NameOf(s.dtype)); });
  // These are the types that travel: users who compress on some ranks only have given the same one everywhere.
  if (answer && (IsHalf(First(p).dtype) || IsHalf(Odd(p, same)->dtype))) {
    *answer += " Compression counts: give it on all ranks, or on none.";
  }
  return answer;
}

Answer Ops(const Proposal& p) {
  return Compare(p, "Mismatched operations", "did an", SameOp, [](auto& s) { return std::string(NameOfOp(s)); });
}

Answer Shapes(const Proposal& p) {
  return Compare(
      p, fmt::format("Mismatched {} tensor shapes", NameOfOp(First(p))), "sent a tensor of shape",
      [](auto& a, auto& b) { return a.shape == b.shape; }, ShowShape);
}

Answer Factors(const Proposal& p) {
  return Compare(
      p, "Mismatched prescale and/or postscale factors", "had",
      [](auto& a, auto& b) {
        return std::bit_cast<uint64_t>(a.prescale) == std::bit_cast<uint64_t>(b.prescale) &&
               std::bit_cast<uint64_t>(a.postscale) == std::bit_cast<uint64_t>(b.postscale);
      },
      [](auto& s) { return fmt::format("prescale {} and postscale {}", s.prescale, s.postscale); });
}

Answer ReduceOps(const Proposal& p) {
  return Compare(
      p, "Mismatched reduction operation", "had op", [](auto& a, auto& b) { return a.reduce_op == b.reduce_op; },
      [](auto& s) { return fmt::format("{} ({})", static_cast<int>(s.reduce_op), NameOf(s.reduce_op)); });
}

Answer NobodyJoined(const Proposal& p) {
  if (p.joined.empty()) return {};
  const OpKind op = First(p).op;
  const bool no_root = op == OpKind::kBroadcast && std::count(p.joined.begin(), p.joined.end(), First(p).root) > 0;
  const bool extends = IsCollective(op) && !no_root;  // whether the setting makes it work
  if (p.join_extended && extends) return {};
  const std::string name = Lower(NameOf(op));
  std::string title = ChangesProcessSets(op) ? name : std::string(1, NameOf(op)[0]) + name.substr(1);
  std::string advice;
  if (extends) advice = " HOROVOD_JOIN_EXTENDED=1 allows it.";
  if (no_root) advice = fmt::format(" Root rank {} is one of those: choose a root that works on.", First(p).root);
  if (ChangesProcessSets(op)) advice = " Call it before join(), or when join() has returned.";
  return fmt::format("{} is not supported with Join at this time: {} {} joined already, {}{}", title,
                     DescribeRanks(p.joined), p.joined.size() == 1 ? "has" : "have", Where(p), advice);
}

// What stands for a joined member changes nothing in a minimum, maximum or product, unless it is scaled.
Answer NobodyJoinedWhereScaled(const Proposal& p) {
  const ReduceOp op = First(p).reduce_op;
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kAdasum;
  if (p.joined.empty() || sums || First(p).prescale == 1.0) return {};
  return fmt::format("Allreduce with {} and prescale factor {} is not supported with Join: {} joined already, {}",
                     NameOf(op), First(p).prescale, DescribeRanks(p.joined), Where(p));
}

Answer SameSets(const Proposal& p) {
  if (First(p).op == OpKind::kRemoveProcessSet) {
    return Compare(
        p, "Mismatched process sets", "removed", [](auto& a, auto& b) { return a.numbers == b.numbers; },
        [](auto& s) { return fmt::format("process set {}", fmt::join(s.numbers, ", ")); });
  }
  return Compare(
      p, "Mismatched process sets", "gave ranks", [](auto& a, auto& b) { return a.numbers == b.numbers; },
      [](auto& s) { return fmt::format("[{}]", fmt::join(s.numbers, ", ")); });
}

// Only the first member is asked: a scalar elsewhere is a difference in rank, which the next check reports.
Answer NotScalar(const Proposal& p) {
  if (!First(p).shape.empty()) return {};
  return fmt::format("Process-set rank zero tried to {} a rank-zero tensor: shapes need a first dimension: {}",
                     NameOf(First(p).op), Listing(p, ShowShape));
}

Answer SlicesOfEqualShape(const Proposal& p) {
  const std::string key = fmt::format("Mismatched {} tensor shapes", NameOf(First(p).op));
  if (const auto *odd = Odd(p, [](auto& a, auto& b) { return a.shape.size() == b.shape.size(); })) {
    return Mismatch(
        p, key, "sent a tensor of rank", *odd, [](auto& s) { return fmt::to_string(s.shape.size()); }, ShowShape);
  }
  for (size_t dim = 1; dim < First(p).shape.size(); ++dim) {
    if (const auto *odd = Odd(p, [dim](auto& a, auto& b) { return a.shape[dim] == b.shape[dim]; })) {
      return Mismatch(
          p, key, fmt::format("sent a tensor with dimension {} equal to", dim), *odd,
          [dim](auto& s) { return fmt::to_string(s.shape[dim]); }, ShowShape);
    }
  }
  return {};
}

Answer Roots(const Proposal& p) {
  return Compare(
      p, "Mismatched BROADCAST root ranks", "specified root rank", [](auto& a, auto& b) { return a.root == b.root; },
      [](auto& s) { return fmt::to_string(s.root); });
}

Answer Devices(const Proposal& p) {
  return Compare(
      p, fmt::format("Mismatched {} CPU/GPU device selection", NameOf(First(p).op)), "specified device",
      [](auto& a, auto& b) { return a.device == b.device; },
      [](auto& s) { return s.device == Device::kCpu ? std::string("CPU") : std::string("GPU"); });
}

struct AgreementCheck {
  OpMask applies_to;
  Answer (*check)(const Proposal&);
};

// In this order. A row after `Ops` may rely on all members having the same operation.
constexpr auto kChecks = std::to_array<AgreementCheck>({
    {kAllOps, DTypes},
    {kAllOps, Ops},
    {kReductions | Bit(OpKind::kBroadcast), Shapes},
    {kReductions, Factors},
    {Bit(OpKind::kAllreduce), ReduceOps},
    {Bit(OpKind::kAllreduce), NobodyJoinedWhereScaled},
    {kGathers, NobodyJoined},
    {kGathers | Bit(OpKind::kReducescatter), NotScalar},
    {kGathers, SlicesOfEqualShape},
    {Bit(OpKind::kReducescatter) | Bit(OpKind::kBroadcast), NobodyJoined},
    {Bit(OpKind::kBroadcast), Roots},
    {Bit(OpKind::kAddProcessSet) | Bit(OpKind::kRemoveProcessSet), SameSets},
    {Bit(OpKind::kAddProcessSet) | Bit(OpKind::kRemoveProcessSet), NobodyJoined},
    {kAllOps, Devices},
});

struct Total {
  int64_t rows;
  bool countable;  // rows and their bytes fit into 63 bits
};

Total Count(const Signature& one, std::span<const int64_t> first_dims) {
  int64_t rows = 0;
  bool overflow = false;
  for (const int64_t dim : first_dims) overflow |= __builtin_add_overflow(rows, dim, &rows);
  int64_t bytes = static_cast<int64_t>(SizeOf(one.dtype));
  overflow |= __builtin_mul_overflow(bytes, rows, &bytes);
  for (size_t i = 1; i < one.shape.size(); ++i) overflow |= __builtin_mul_overflow(bytes, one.shape[i], &bytes);
  return {rows, !overflow};
}

}  // namespace

Answer FindDisagreement(const Proposal& proposal) {
  for (const AgreementCheck& row : kChecks) {
    if ((row.applies_to & Bit(First(proposal).op)) == 0) continue;
    if (Answer answer = row.check(proposal)) return answer;
  }
  return {};
}

Answer FindOverflow(const Proposal& proposal, std::span<const int64_t> first_dims) {
  const Signature& one = First(proposal);
  const auto [rows, countable] = Count(one, first_dims);
  if (countable) return {};
  return fmt::format("The result of {} has too many bytes to count: {} rows or more, {}", NameOf(one.op), rows,
                     Where(proposal));
}

bool RowsFit(const Signature& own, std::span<const int64_t> rows, int members, int me) {
  if (own.shape.empty()) return false;
  if (!FirstDimIsFree(own.op)) return true;
  const auto each = static_cast<size_t>(own.op == OpKind::kAlltoall ? members : 1);
  if (rows.size() != each * static_cast<size_t>(members)) return false;
  if (std::any_of(rows.begin(), rows.end(), [](int64_t count) { return count < 0; })) return false;
  const Total mine = Count(own, rows.subspan(each * static_cast<size_t>(me), each));
  return mine.countable && mine.rows <= own.shape[0] && Count(own, rows).countable;
}

}  // namespace hvd::controller
