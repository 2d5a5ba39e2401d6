// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/group_book.h"

#include <fmt/format.h>

#include <charconv>

namespace hvd::controller {
namespace {

// A decimal number without leading zeros, from 1; 0: it is none.
int Number(std::string_view digits) {
  int number = 0;
  if (digits.empty() || digits.front() == '0') return 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() && number > 0 ? number : 0;
}

}  // namespace

std::optional<GroupName> ParseGroupName(std::string_view name) {
  if (!name.starts_with("grouped_")) return {};
  const size_t of = name.rfind("of");
  const size_t bar = name.rfind('_');
  if (of == std::string_view::npos || bar == std::string_view::npos || bar > of) return {};
  const GroupName parsed{name.substr(0, bar), Number(name.substr(bar + 1, of - bar - 1)), Number(name.substr(of + 2))};
  if (parsed.number == 0 || parsed.number > parsed.length) return {};
  return parsed;
}

std::string MakeGroupName(std::string_view group, int number, int length) {
  return fmt::format("{}_{}of{}", group, number, length);
}

void GroupBook::Add(std::string_view name, int member) {
  const auto parsed = ParseGroupName(name);
  if (!parsed) return;
  Group& group = groups_[std::string(parsed->group)];
  group.uses.resize(members_);
  Use& use = group.uses[member];
  group.mixed |= use.asked > 0 && use.length != parsed->length;
  use.length = parsed->length;
  ++use.asked;
  ++group.asked;
}

void GroupBook::Remove(std::string_view name, int member) {
  const auto parsed = ParseGroupName(name);
  if (!parsed) return;
  const auto found = groups_.find(std::string(parsed->group));
  --found->second.uses[member].asked;
  if (--found->second.asked == 0) groups_.erase(found);
}

std::optional<std::vector<int>> GroupBook::FindMismatch(std::string_view name, const std::vector<bool>& joined) const {
  const auto parsed = ParseGroupName(name);
  if (!parsed) return {};
  const auto found = groups_.find(std::string(parsed->group));
  if (found == groups_.end() || found->second.mixed) return {};
  std::vector<int> lengths(members_, 0);
  bool differ = false;
  for (size_t m = 0; m < members_; ++m) {
    if (joined[m]) continue;
    const Use& use = found->second.uses[m];
    if (use.asked == 0 || use.asked != use.length) return {};
    lengths[m] = use.length;
    differ |= use.length != parsed->length;
  }
  if (!differ) return {};
  return lengths;
}

}  // namespace hvd::controller
