// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "hvd/base/suggest.h"
#include "hvd/base/variables.h"

namespace hvd::launch {
namespace {

std::vector<std::string> Words(const char* text) {
  std::vector<std::string> words;
  for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    words.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return words;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

template <typename Visit>
void ForEachFlag(Visit visit) {
  for (const Section& section : Sections()) {
    for (const Flag& flag : section.flags) visit(flag);
  }
}

template <typename N>
bool ParseNumber(std::string_view text, N* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool Read(std::string_view text, bool* value) {
  const std::string lower = Lower(text);
  *value = lower == "1" || lower == "true" || lower == "yes" || lower == "on";
  return *value || lower == "0" || lower == "false" || lower == "no" || lower == "off";
}
bool Read(std::string_view text, int64_t* value) { return ParseNumber(text, value); }
bool Read(std::string_view text, double* value) { return ParseNumber(text, value) && std::isfinite(*value); }
bool Read(std::string_view text, std::string* value) {
  *value = text;
  return true;
}

std::string Expected(const Flag& flag) {
  constexpr const char* kKinds[] = {"true or false", "a whole number", "a number", "text", "text"};
  std::string text = kKinds[flag.field.index()];
  if (flag.choices != nullptr) {
    text = "one of";
    for (const std::string& choice : Words(flag.choices)) text += " " + choice;
  }
  if (std::isfinite(flag.minimum) && std::isfinite(flag.maximum)) {
    return fmt::format("{} from {} to {}", text, flag.minimum, flag.maximum);
  }
  if (std::isfinite(flag.minimum)) return fmt::format("{} of at least {}", text, flag.minimum);
  return text;
}

tl::unexpected<Error> Bad(const Flag& flag, std::string_view origin, std::string_view text) {
  return Fail(Code::kInvalidArgument, "{} {}: expected {}{}", origin, text.empty() ? "''" : text, Expected(flag),
              DidYouMean(Lower(text), Words(flag.choices)));
}

// Whether the user asked for something that is not there, and says so.
Status CheckBuilt(const Flag& flag, std::string_view origin, bool asks, Options* options) {
  if (!asks || flag.built == Built::kYes) return {};
  if (flag.built == Built::kNotYet) return Fail(Code::kUnimplemented, "{}: {}", origin, Why(flag));
  options->notes.push_back(fmt::format("{} has no effect: {}", origin, Why(flag)));
  return {};
}

template <typename T>
Status Store(const Flag& flag, std::string_view origin, std::string_view text, std::optional<T>* into) {
  T value;
  if (!Read(text, &value)) return Bad(flag, origin, text);
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    const auto number = static_cast<double>(value);
    if (number < flag.minimum || number > flag.maximum) return Bad(flag, origin, text);
  }
  *into = std::move(value);
  return {};
}

Status Store(const Flag&, std::string_view, std::string_view text, List* into) {
  into->emplace_back(text);
  return {};
}

std::string Written(const Flag& flag, bool value) { return value != (flag.as == Export::kInverted) ? "1" : "0"; }
std::string Written(const Flag& flag, int64_t value) {
  return fmt::format("{}", flag.as == Export::kMegabytes ? value << 20 : value);
}
std::string Written(const Flag&, double value) { return fmt::format("{}", value); }
std::string Written(const Flag&, const std::string& value) { return value; }

}  // namespace

std::string Why(const Flag& flag) {
  return flag.why != nullptr ? flag.why : std::string(WhyWithoutEffect(flag.variable == nullptr ? "" : flag.variable));
}

const Flag* FindFlag(std::string_view name) {
  const Flag* found = nullptr;
  ForEachFlag([&](const Flag& flag) {
    if (std::ranges::count(Words(flag.names), name) > 0) found = &flag;
  });
  return found;
}

const Flag* FindKey(std::string_view key) {
  const Flag* found = nullptr;
  ForEachFlag([&](const Flag& flag) {
    if (flag.key != nullptr && flag.key == key) found = &flag;
  });
  return found;
}

std::vector<std::string> FlagNames() {
  std::vector<std::string> names;
  ForEachFlag([&](const Flag& flag) {
    for (std::string& name : Words(flag.names)) names.push_back(std::move(name));
  });
  return names;
}

std::vector<std::string> Keys() {
  std::vector<std::string> keys;
  ForEachFlag([&](const Flag& flag) {
    if (flag.key != nullptr) keys.emplace_back(flag.key);
  });
  return keys;
}

Status Assign(const Flag& flag, std::string_view origin, std::string_view text, Options* options) {
  const bool is_switch = flag.value == nullptr;
  if (flag.built == Built::kNotYet && !is_switch) return CheckBuilt(flag, origin, true, options);
  const bool is_text =
      std::holds_alternative<Text Options::*>(flag.field) || std::holds_alternative<List Options::*>(flag.field);
  if (is_text && text.empty() && !flag.may_be_empty) {
    return Fail(Code::kInvalidArgument, "{} '': expected {}, not nothing", origin, flag.value);
  }
  const std::vector<std::string> choices = Words(flag.choices);
  if (!choices.empty() && std::ranges::count(choices, Lower(text)) == 0) return Bad(flag, origin, text);
  const std::string chosen = choices.empty() ? std::string(text) : Lower(text);
  HVD_RETURN_IF_ERROR(
      std::visit([&](auto member) { return Store(flag, origin, chosen, &(options->*member)); }, flag.field));
  bool on = false;
  return CheckBuilt(flag, origin, !is_switch || (Read(text, &on) && on), options);
}

Status Turn(const Flag& flag, std::string_view origin, Options* options) {
  options->*std::get<Switch Options::*>(flag.field) = flag.on;
  return CheckBuilt(flag, origin, flag.on, options);
}

std::vector<std::pair<std::string, std::string>> Exports(const Options& options) {
  std::vector<std::pair<std::string, std::string>> variables;
  ForEachFlag([&](const Flag& flag) {
    if (flag.variable == nullptr) return;
    if (flag.only_with != nullptr && !(options.*flag.only_with).value_or(false)) return;
    std::visit(
        [&](auto member) {
          const auto& value = options.*member;
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, List>) {
            if (value) variables.emplace_back(flag.variable, Written(flag, *value));
          }
        },
        flag.field);
  });
  return variables;
}

std::vector<std::string> NotesFor(const Environment& ranks, const Options& options) {
  std::vector<std::string> names;
  for (const std::string& line : ranks.Lines()) names.push_back(line.substr(0, line.find('=')));
  // A flag has its own note.
  for (const auto& [name, value] : Exports(options)) std::erase(names, name);
  return NotesOnVariables(names);
}

}  // namespace hvd::launch
