// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/stall/stall_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "hvd/base/tensor_labels.h"
#include "hvd/controller/describe.h"
#include "hvd/engine/stall/stall_analysis.h"
#include "hvd/trace/escape.h"

namespace hvd::engine {
namespace {

using WaitStage = wire::Waiting::Stage;
using wire::Signature;

constexpr size_t kNamesShown = 6;
constexpr size_t kRanksShown = 6;
constexpr size_t kGroupsShown = 3;
constexpr size_t kSidesShown = 2;
constexpr size_t kCompared = 16;
constexpr const char* kOtherBranch =
    "look for a condition around the call that depends on the rank or the data; most often the ranks have different "
    "numbers of batches: give all the same (steps_per_epoch, drop_remainder=True), or use hvd.join()";

std::string Quoted(std::string_view name) {
  std::array<char, 80> cut;
  return fmt::format("'{}'{}", trace::Escaped({cut.data(), trace::CutName(name, cut.data(), cut.size())}),
                     trace::Escaped(TensorLabelInBrackets(name)));
}

std::string Lower(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string OnSet(int set) { return set == 0 ? std::string() : fmt::format(" on process set {}", set); }

// The set that a removal is about.
int RemovedSet(const wire::Waiting& removal) {
  const std::vector<int64_t>& numbers = removal.request.signature.numbers;
  return numbers.empty() ? -1 : static_cast<int>(numbers[0]);
}

// "allreduce 'grad/2' on process set 1".
std::string Title(const wire::Waiting& waiting) {
  const OpKind op = waiting.request.signature.op;
  if (op == OpKind::kAddProcessSet) return "add_process_set";
  if (op == OpKind::kRemoveProcessSet) return fmt::format("remove_process_set of process set {}", RemovedSet(waiting));
  return fmt::format("{} {}{}", Lower(NameOf(waiting.request.signature.op)), Quoted(waiting.request.name),
                     OnSet(waiting.set));
}

// With "(float32 [4], sum)".
std::string InFull(const wire::Waiting& waiting) {
  const Signature& signature = waiting.request.signature;
  std::string text = Title(waiting);
  if (!HasTensor(signature.op)) return text;
  fmt::format_to(std::back_inserter(text), " ({} {}", NameOf(signature.dtype), ToString(signature.shape));
  if (Reduces(signature.op)) fmt::format_to(std::back_inserter(text), ", {}", NameOf(signature.reduce_op));
  if (signature.op == OpKind::kBroadcast) fmt::format_to(std::back_inserter(text), ", root {}", signature.root);
  return text + ")";
}

std::string Age(int64_t milliseconds) {
  const double seconds = static_cast<double>(milliseconds) / 1000;
  return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
}

std::string Title(const wire::Last& last) {
  return fmt::format("{} {}{}", Lower(NameOf(last.op)), Quoted(last.name), OnSet(last.set));
}

std::string Ranks(const std::set<Rank>& ranks) {
  return controller::DescribeRanks(std::vector<Rank>(ranks.begin(), ranks.end()));
}

// The name without the operation's, which bindings put before it: "allreduce.x".
std::string_view UsersName(const wire::Waiting& waiting) {
  const std::string_view name = waiting.request.name;
  const std::string kind = Lower(NameOf(waiting.request.signature.op)) + ".";
  return name.starts_with(kind) ? name.substr(kind.size()) : name;
}

// In which respects two operations differ.
std::vector<std::string_view> Differences(const wire::Waiting& a, const wire::Waiting& b) {
  const Signature& x = a.request.signature;
  const Signature& y = b.request.signature;
  std::vector<std::string_view> differences;
  if (a.set != b.set) differences.push_back("process set");
  if (UsersName(a) != UsersName(b)) differences.push_back("name");
  if (x.op != y.op) differences.push_back("operation");
  if (!HasTensor(x.op) || !HasTensor(y.op)) return differences;
  if (x.dtype != y.dtype) differences.push_back("type");
  if (x.shape != y.shape) differences.push_back("shape");
  if (Reduces(x.op) && Reduces(y.op) && x.reduce_op != y.reduce_op) differences.push_back("reduction");
  if (x.op == OpKind::kBroadcast && y.op == x.op && x.root != y.root) differences.push_back("root");
  return differences;
}

class Words {
 public:
  Words(const std::vector<RankObservation>& observations, const StallAnalysis& analysis)
      : observations_(observations), analysis_(analysis) {}

  StallReport Write() {
    const Stall& longest = *analysis_.stalls()[0];
    StallReport report;
    report.at_fault = analysis_.at_fault();
    report.waited_s = static_cast<double>(longest.waited_ms) / 1000;
    report.undecided = analysis_.undecided();
    if (report.undecided) {
      report.text = fmt::format("Stalled for {}: {} wait for different operations.", Age(longest.waited_ms),
                                controller::DescribeRanks(report.at_fault));
    } else {
      report.text =
          fmt::format("Stalled for {}: {}{} waits for {}.", Age(longest.waited_ms), Title(*longest.sample),
                      analysis_.total() > 1 ? fmt::format(" (and {} more)", analysis_.total() - 1) : std::string(),
                      Ranks(longest.missing));
    }
    WriteGroups(&report.text);
    WriteHeld(&report.text);
    std::string advice;
    for (size_t i = 0; i < report.at_fault.size() && i < kRanksShown; ++i) {
      const Finding finding = Explain(report.at_fault[i]);
      const RankObservation& observation = ObservationOf(report.at_fault[i]);
      fmt::format_to(std::back_inserter(report.text), "\n  Rank {} (host {}, pid {}) {}.", observation.rank,
                     trace::Escaped(observation.host), observation.pid, finding.text);
      if (i == 0) advice = finding.advice;
      // Where no rank is more wrong than another, both sides are named.
      if (i < (report.undecided ? kSidesShown : 1)) {
        fmt::format_to(std::back_inserter(report.brief), "{}rank {} {}", i == 0 ? "" : ", ", observation.rank,
                       finding.brief);
      }
      fmt::format_to(std::back_inserter(report.key), "{}:{}\n", observation.rank, finding.kind);
    }
    if (report.at_fault.size() > kRanksShown) {
      fmt::format_to(std::back_inserter(report.text), "\n  And {} more ranks.", report.at_fault.size() - kRanksShown);
    }
    if (report.at_fault.size() > (report.undecided ? kSidesShown : 1)) {
      report.brief += fmt::format(" ({} ranks in all)", report.at_fault.size());
    }
    if (report.undecided) {
      report.text +=
          "\n  Equally many ranks wait for each operation, so this report cannot tell which ranks are wrong.";
    }
    if (!advice.empty()) report.text += "\n  Next: " + advice + ".";
    return report;
  }

 private:
  struct Finding {
    std::string text;
    std::string brief;  // the same, without times
    std::string kind;   // without names, too: of several that wait, another may be the longest the next time
    std::string advice;
  };

  const RankObservation& ObservationOf(Rank rank) const {
    static const RankObservation kUnknown;
    const auto found = std::ranges::find(observations_, rank, &RankObservation::rank);
    return found == observations_.end() ? kUnknown : *found;
  }

  // Operations with the same waiting and missing ranks share a line.
  void WriteGroups(std::string* text) const {
    std::vector<std::vector<const Stall*>> groups;
    for (const Stall* stall : analysis_.stalls()) {
      const auto same = std::ranges::find_if(groups, [&](const auto& group) {
        return group[0]->waiting == stall->waiting && group[0]->missing == stall->missing;
      });
      if (same == groups.end()) {
        groups.push_back({stall});
      } else {
        same->push_back(stall);
      }
    }
    for (size_t i = 0; i < groups.size() && i < kGroupsShown; ++i) {
      const Stall& first = *groups[i][0];
      std::vector<std::string> names;
      for (const Stall* stall : groups[i]) {
        if (names.size() < kNamesShown) names.push_back(names.empty() ? InFull(*stall->sample) : Title(*stall->sample));
      }
      const size_t more = groups[i].size() - names.size();
      fmt::format_to(std::back_inserter(*text), "\n  {} {} for {}{}; missing ranks: {}", Capital(first.waiting),
                     first.waiting.size() == 1 ? "waits" : "wait", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : std::string(), Ranks(first.missing));
    }
    size_t more = analysis_.total() - analysis_.stalls().size();
    for (size_t i = kGroupsShown; i < groups.size(); ++i) more += groups[i].size();
    if (more > 0) fmt::format_to(std::back_inserter(*text), "\n  And {} more operations.", more);
  }

  // Who waits inside a call that needs everybody, for something else.
  void WriteHeld(std::string* text) const {
    for (const Stall* removal : analysis_.Held()) {
      const std::vector<Rank> holders(removal->holding.begin(), removal->holding.end());
      const bool one = holders.size() == 1;
      fmt::format_to(std::back_inserter(*text), "\n  {} {} in {}, and {} there for {} own operations on that set.",
                     Capital(holders), one ? "is" : "are", Title(*removal->sample), one ? "waits" : "wait",
                     one ? "its" : "their");
    }
  }

  static std::string Capital(const std::vector<Rank>& ranks) {
    std::string text = controller::DescribeRanks(ranks);
    text[0] = 'R';
    return text;
  }

  Finding Explain(Rank rank) const {
    const RankObservation& observation = ObservationOf(rank);
    if (!observation.reply) return Silent(observation);
    const Stall* missed = analysis_.MissedBy(rank);
    const std::vector<const Stall*> own = analysis_.WaitedForBy(rank);
    for (const Stall* removal : analysis_.Held()) {
      if (const Stall* left_out = LeftOut(rank, *removal)) return Removes(*removal, *left_out);
    }
    if (!own.empty() && observation.reply->blocked) return Elsewhere(observation, missed, own);
    if (missed != nullptr && missed->agreed) return Stuck(observation, *missed);
    for (const wire::Waiting& waiting : observation.reply->waiting) {
      if (waiting.stage == WaitStage::kOthers || !observation.reply->blocked) continue;
      const std::string what = fmt::format("is busy with {}", Title(waiting));
      return {what + LastOf(*observation.reply), what, "is busy with others", "look at its processor load and stack"};
    }
    return Busy(observation, missed);
  }

  // What the rank did not submit before it came to this removal; nullptr: it did not come to it, or lacks nothing.
  const Stall* LeftOut(Rank rank, const Stall& removal) const {
    if (std::ranges::find(removal.waiting, rank) == removal.waiting.end()) return nullptr;
    const auto found = std::ranges::find_if(analysis_.stalls(), [&](const Stall* stall) {
      return stall->sample->set == RemovedSet(*removal.sample) && stall->IsMissing(rank) && !stall->agreed;
    });
    return found == analysis_.stalls().end() ? nullptr : *found;
  }

  static Finding Removes(const Stall& removal, const Stall& left_out) {
    const std::string brief =
        fmt::format("is in {} without having submitted {}", Title(*removal.sample), Title(*left_out.sample));
    return {brief + fmt::format(", which {} {} for", controller::DescribeRanks(left_out.waiting),
                                left_out.waiting.size() == 1 ? "waits" : "wait"),
            brief, "removes a set before an operation on it",
            "submit an operation on all ranks of its set, or on none, before the set is removed"};
  }

  static Finding Silent(const RankObservation& observation) {
    const auto finding = [](std::string text, std::string brief, std::string advice) {
      return Finding{std::move(text), brief, brief, std::move(advice)};
    };
    switch (observation.process_state) {
      case 'T':
      case 't':
        return finding("is stopped (SIGSTOP or a debugger)", "is stopped",
                       fmt::format("kill -CONT {}", observation.pid));
      case 'Z':
      case 'X':
      case '-':
        return finding("is dead", "is dead", "look at its stderr; out of memory kills silently");
      case 'D':
        return finding("does not answer: it is stuck in the kernel (a disk, a file server, a driver)",
                       "is stuck in the kernel", fmt::format("cat /proc/{}/stack as root", observation.pid));
      case 0:
        return finding("does not answer: it is stopped or dead, or the network to it is cut", "does not answer",
                       "look at its host whether the process lives");
      default:
        return finding("does not answer, although its process runs: its host is overloaded, or its engine hangs",
                       "does not answer", "look at its processor load and stack");
    }
  }

  Finding Elsewhere(const RankObservation& observation, const Stall* missed,
                    const std::vector<const Stall*>& own) const {
    const Stall* closest = missed;
    const Stall* mine = own[0];
    size_t fewest = SIZE_MAX;
    // Of all that it lacks and all that it waits for, the two that are most alike.
    for (size_t i = 0; i < analysis_.stalls().size() && i < kCompared; ++i) {
      const Stall* lacked = analysis_.stalls()[i];
      if (!lacked->IsMissing(observation.rank) || lacked->agreed) continue;
      for (size_t k = 0; k < own.size() && k < kCompared; ++k) {
        const size_t differences = Differences(*lacked->sample, *own[k]->sample).size();
        if (differences >= fewest) continue;
        fewest = differences;
        closest = lacked;
        mine = own[k];
      }
    }
    const std::string lacking = Ranks(mine->missing);
    Finding finding;
    finding.kind = "waits for another";
    finding.brief = fmt::format("waits for {}", Title(*mine->sample));
    finding.text = fmt::format("waits for {}, which {} {} not submitted", InFull(*mine->sample), lacking,
                               mine->missing.size() == 1 ? "has" : "have");
    if (closest == nullptr) return finding;
    const auto differences = Differences(*closest->sample, *mine->sample);
    const bool only_one = differences.size() == 1;
    finding.text += fmt::format(" (from {} {} in {})", Title(*closest->sample),
                                only_one ? "it differs only" : "it differs", fmt::join(differences, ", "));
    if (const wire::Last& last = observation.reply->finished; last.ago_ms >= 0) {
      finding.text += fmt::format("; last finished {} {} ago", Title(last), Age(last.ago_ms));
    }
    if (closest->before && mine->before) {
      finding.text += ". Both were done before: it skipped the former, or comes to it later than the others";
      finding.advice = kOtherBranch;
    } else if (only_one && differences[0] == "name") {
      finding.advice = "give names that do not depend on the rank, or on how often something was called";
    } else {
      finding.advice = kOtherBranch;
    }
    return finding;
  }

  static Finding Stuck(const RankObservation& observation, const Stall& missed) {
    Finding finding;
    finding.kind = "does not move its data";
    finding.brief = fmt::format("{} of {}", finding.kind, Title(*missed.sample));
    finding.text = finding.brief;
    finding.advice = "look at its processor load and at the network";
    for (const wire::Waiting& waiting : observation.reply->waiting) {
      if (waiting.set != missed.sample->set || waiting.request.name != missed.sample->request.name) continue;
      if (waiting.stage != WaitStage::kAgreed) break;
      finding.text += ": it waits for the memory of a result, which its program has not given yet";
      finding.advice = fmt::format("look at its stack: py-spy dump --pid {}", observation.pid);
    }
    finding.text += LastOf(*observation.reply);
    return finding;
  }

  static Finding Busy(const RankObservation& observation, const Stall* missed) {
    if (missed != nullptr && missed->before) {
      const std::string what = "is busy in its own code: it has not come to this operation again";
      return {what + LastOf(*observation.reply), "is busy in its own code", "is busy",
              fmt::format("look at its stack: py-spy dump --pid {}", observation.pid)};
    }
    const std::string what = "never submitted it, and is in its own code";
    return {what + LastOf(*observation.reply), "never submitted it", "is busy", kOtherBranch};
  }

  static std::string LastOf(const wire::StatusReply& reply) {
    if (reply.submitted.ago_ms < 0) return "; it has submitted nothing so far";
    std::string text = fmt::format("; last submitted {} {} ago", Title(reply.submitted), Age(reply.submitted.ago_ms));
    if (reply.finished.ago_ms < 0) return text;
    const bool same = reply.finished.name == reply.submitted.name && reply.finished.set == reply.submitted.set;
    return text +
           fmt::format(", {} {} ago", same ? "over" : "finished " + Title(reply.finished), Age(reply.finished.ago_ms));
  }

  const std::vector<RankObservation>& observations_;
  const StallAnalysis& analysis_;
};

}  // namespace

std::optional<StallReport> DescribeStall(const std::vector<RankObservation>& observations, const MembersOf& members,
                                         double limit_s) {
  const StallAnalysis analysis(observations, members, limit_s);
  if (analysis.stalls().empty() || analysis.at_fault().empty()) return std::nullopt;
  return Words(observations, analysis).Write();
}

}  // namespace hvd::engine
