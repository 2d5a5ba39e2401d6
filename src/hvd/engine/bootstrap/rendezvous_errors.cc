// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/rendezvous_errors.h"

#include <algorithm>
#include <charconv>

namespace hvd::engine::bootstrap {
namespace {

template <typename Number>
bool Take(std::string_view* text, char end, Number* value) {
  const size_t size = text->find(end);
  if (size == std::string_view::npos) return false;
  const auto [at, error] = std::from_chars(text->data(), text->data() + size, *value);
  const bool good = error == std::errc() && at == text->data() + size;
  text->remove_prefix(size + 1);
  return good;
}

std::string WhoIs(const RankDescriptor& card) {
  return card.process.pid == 0 ? "an unknown process" : fmt::format("pid {} on {}", card.process.pid, card.hostname);
}

}  // namespace

std::string EncodeError(const Error& error) {
  return fmt::format("{} {} {}", static_cast<int>(error.code), error.rank, error.message);
}

Error DecodeError(std::string_view text) {
  int code = 0;
  Error error;
  std::string_view rest = text;
  if (Take(&rest, ' ', &code) && Take(&rest, ' ', &error.rank) && code > 0 && code <= 16) {
    error.code = static_cast<Code>(code);
    error.message = rest;
    return error;
  }
  return {Code::kUnknown, std::string(text)};
}

std::string EncodeStart(const Start& start) {
  return fmt::format("{} {} {} {}", start.generation, start.process.pid, start.process.start_time,
                     start.process.machine);
}

std::optional<Start> DecodeStart(std::string_view text) {
  Start start;
  const bool good = Take(&text, ' ', &start.generation) && Take(&text, ' ', &start.process.pid) &&
                    Take(&text, ' ', &start.process.start_time);
  if (!good) return std::nullopt;
  start.process.machine = text;
  return start;
}

std::vector<Rank> Numbers(std::string_view text, char between) {
  std::vector<Rank> numbers;
  while (!text.empty()) {
    const size_t end = std::min(text.find(between), text.size());
    Rank number = 0;
    const auto [at, error] = std::from_chars(text.data(), text.data() + end, number);
    if (error == std::errc() && at == text.data() + end) numbers.push_back(number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return numbers;
}

std::string NameOf(const std::vector<Rank>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return text;
}

Error RanksMissing(const Config& config, const std::vector<Rank>& missing, int came, std::string_view more) {
  const std::string counted = came > 0 ? fmt::format(" ({} came)", came) : "";
  return {Code::kDeadlineExceeded,
          fmt::format("{} of {} did not come to {} within {:g} s{}: see whether {} running, and whether every rank has "
                      "the same HOROVOD_SIZE, HOROVOD_RENDEZVOUS_ADDR and HOROVOD_GENERATION; HOROVOD_START_TIMEOUT "
                      "sets the limit{}",
                      NameOf(missing), config.size, config.rendezvous_addr, config.start_timeout_s, counted,
                      missing.size() == 1 ? "it is" : "they are", more),
          missing[0]};
}

Error RanksNotReady(const Config& config, std::string_view what, const std::vector<Rank>& ranks,
                    const std::vector<std::optional<RankDescriptor>>& cards) {
  const Rank first = ranks[0];
  const std::string who = ranks.size() == 1 && cards[first] ? NameOf(first, *cards[first]) : NameOf(ranks);
  return {Code::kDeadlineExceeded,
          fmt::format("{} of {} came to {} and did not get ready ({}) within {:g} s: see whether {} stopped, or very "
                      "slow; HOROVOD_START_TIMEOUT sets the limit",
                      who, config.size, config.rendezvous_addr, what, config.start_timeout_s,
                      ranks.size() == 1 ? "it is" : "they are"),
          first};
}

Error Ended(const Config& config, Rank rank, const RankDescriptor& card) {
  return {Code::kUnknown,
          fmt::format("{} of {} ended while the ranks were starting: its own output should tell why",
                      NameOf(rank, card), config.size),
          rank};
}

Error RankLeftBeforeInit(const Config& config, Rank rank) {
  return {
      Code::kFailedPrecondition,
      fmt::format("rank {} of {} ended with exit code 0 before it called hvd.init(), which the others wait for: let "
                  "every rank call it, as often as the others do",
                  rank, config.size),
      rank};
}

Error RankLostBeforeInit(const Config& config, Rank rank) {
  return {Code::kUnknown,
          fmt::format("rank {} of {} ended before the others reached it in hvd.init()", rank, config.size), rank};
}

Error NoVerdict(const Config& config, const RankDescriptor& host) {
  return {Code::kDeadlineExceeded,
          fmt::format("{} invited this rank to {} and did not answer within {:g} s: is it stopped, or was it killed? "
                      "HOROVOD_START_TIMEOUT sets the limit",
                      NameOf(0, host), config.rendezvous_addr, config.start_timeout_s),
          0};
}

Error OtherGeneration(const Config& config, int pid, Rank rank, const Start& start) {
  return {Code::kFailedPrecondition,
          fmt::format(
              "HOROVOD_GENERATION differs: {} on rank {} (pid {}), {} on rank {} (pid {}); give every rank the same",
              config.generation, config.rank, pid, start.generation, rank, start.process.pid),
          rank};
}

Error DuplicateRankZero(const Config& config, const RankDescriptor& first, const RankDescriptor& second) {
  return {Code::kFailedPrecondition,
          fmt::format("rank 0 was given twice at {}: to {} and to {}; two processes have HOROVOD_RANK=0, or two jobs "
                      "meet at the same place: give each its own HOROVOD_RENDEZVOUS_ADDR",
                      config.rendezvous_addr, WhoIs(first), WhoIs(second)),
          0};
}

Error DuplicateRank(Rank rank, const RankDescriptor& first, const RankDescriptor& second) {
  return {Code::kFailedPrecondition,
          fmt::format("rank {} was given twice: to {} and to {}; every process needs a HOROVOD_RANK of its own, "
                      "and none may be left over from an earlier run",
                      rank, WhoIs(first), WhoIs(second)),
          rank};
}

Error WithHint(Error told, const std::string& hint) {
  if (told.code == Code::kDeadlineExceeded && !hint.empty()) told.message += "; " + hint;
  return told;
}

}  // namespace hvd::engine::bootstrap
