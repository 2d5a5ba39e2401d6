// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which groups of tensors members have asked for, to find those whose lengths differ: their members' names differ, too
// ("grouped_allreduce.g_1of1" here, "grouped_allreduce.g_1of2" there), so each would wait for ever.
//
// A rank has a group of one name in flight once (engine/registry.h). So when all members have asked for the whole of
// their group of one name, and lengths differ, none of them can ever come about.
//
// Thread safety: none.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hvd::controller {

// The name of one tensor of a group, as bindings make them.
struct GroupName {
  std::string_view group;  // "grouped_allreduce.g"
  int number = 0;          // from 1
  int length = 0;
};

// nullopt: it does not look like one.
std::optional<GroupName> ParseGroupName(std::string_view name);
std::string MakeGroupName(std::string_view group, int number, int length);

class GroupBook {
 public:
  explicit GroupBook(size_t members) : members_(members) {}

  // A member wants a name, or does not any more; names that belong to no group are ignored.
  void Add(std::string_view name, int member);
  void Remove(std::string_view name, int member);

  // Length by member of the group that `name` belongs to, 0 for those in `joined`; nullopt: lengths are equal, or not
  // all members have asked for all of theirs yet.
  std::optional<std::vector<int>> FindMismatch(std::string_view name, const std::vector<bool>& joined) const;

 private:
  struct Use {
    int length = 0;
    int asked = 0;
  };
  struct Group {
    std::vector<Use> uses;  // by member
    int asked = 0;
    bool mixed = false;  // a member wants two lengths at once: it made the names itself, and knows what it does
  };

  const size_t members_;
  std::unordered_map<std::string, Group> groups_;
};

}  // namespace hvd::controller
