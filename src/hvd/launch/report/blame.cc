// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/blame.h"

#include <array>
#include <charconv>

namespace hvd::launch {
namespace {

// How the library's texts begin or go on; see engine/membership/membership.cc and
// engine/bootstrap/rendezvous_errors.cc, whose tests and those of the launcher hold them together.
constexpr std::string_view kLost = "Horovod has been shut down: rank ";
constexpr std::array<std::string_view, 2> kAbsent{" did not come to ", " and did not get ready ("};
constexpr std::string_view kEnded = " ended while the ranks were starting";
constexpr std::string_view kGaveUp = " gave up in hvd.init(): ";
constexpr std::string_view kLeft = " ended with exit code 0 before it called hvd.init()";
constexpr std::array<std::string_view, 2> kSilent{" did not respond for ", " did not submit what the others wait for"};

std::optional<int> NumberAt(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

// The number after the first "rank " or "ranks " before `end`.
std::optional<int> FirstRank(std::string_view text, size_t end) {
  const std::string_view before = text.substr(0, end);
  for (const std::string_view word : {std::string_view("rank "), std::string_view("ranks ")}) {
    const size_t at = before.rfind(word);
    if (at != std::string_view::npos) return NumberAt(before.substr(at + word.size()));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Blame> FindBlame(std::string_view line) {
  if (const size_t at = line.find(kLost); at != std::string_view::npos) {
    const auto rank = NumberAt(line.substr(at + kLost.size()));
    if (!rank) return std::nullopt;
    bool silent = false;
    for (const std::string_view text : kSilent) silent |= line.find(text, at) != std::string_view::npos;
    return Blame{*rank, silent};
  }
  for (const std::string_view text : kAbsent) {
    if (const size_t at = line.find(text); at != std::string_view::npos) {
      if (const auto rank = FirstRank(line, at)) return Blame{*rank, true};
    }
  }
  for (const std::string_view text : {kEnded, kGaveUp, kLeft}) {
    if (const size_t at = line.find(text); at != std::string_view::npos) {
      if (const auto rank = FirstRank(line, at)) return Blame{*rank, false, text == kLeft};
    }
  }
  return std::nullopt;
}

}  // namespace hvd::launch
