// SPDX-License-Identifier: Apache-2.0
#include "hvd/algorithms/change.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>

namespace hvd::algorithms {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::kTiny,
                                     Algorithm::kDirect,
                                     Algorithm::kCopied,
                                     Algorithm::kInline,
                                     Algorithm::kCma,
                                     Algorithm::kStaged,
                                     Algorithm::kHierarchicalReduce,
                                     Algorithm::kOneStep,
                                     Algorithm::kDirectReduce,
                                     Algorithm::kExchange,
                                     Algorithm::kTree,
                                     Algorithm::kDirectScatter};

struct NamedParameter {
  std::string_view word;
  size_t Parameters::*member;
};
constexpr NamedParameter kParameters[] = {
    {"chunk", &Parameters::chunk}, {"slice", &Parameters::slice}, {"flight", &Parameters::flight}};

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<uint64_t> ParseSize(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    constexpr std::string_view kUnits = "KMG";
    if (const size_t unit = kUnits.find(text.back()); unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > (UINT64_MAX >> 1 >> shift)) return {};
  return value << shift;
}

std::optional<Range> ParseRange(std::string_view text) {
  if (text == "none") return Range{1, 0};
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {};
  Range range;
  if (const auto least = text.substr(0, dots); !least.empty()) {
    const auto size = ParseSize(least);
    if (!size) return {};
    range.least = *size;
  }
  if (const auto most = text.substr(dots + 2); !most.empty()) {
    const auto size = ParseSize(most);
    if (!size) return {};
    range.most = *size;
  }
  if (range.empty()) return {};
  return range;
}

template <typename Words>
std::string Joined(const Words& words) {
  std::string text;
  for (const std::string_view word : words) text += fmt::format("{}{}", text.empty() ? "" : ", ", word);
  return text;
}

template <typename Values>
std::vector<std::string_view> WordsFor(const Values& values) {
  std::vector<std::string_view> words;
  for (const auto value : values) words.push_back(WordFor(value));
  return words;
}

// The value of that name, or nothing for `any`.
template <typename Values>
auto Find(const Change& change, std::string_view what, const Values& values, std::string_view word, bool any)
    -> Result<std::optional<std::decay_t<decltype(*std::begin(values))>>> {
  using Value = std::decay_t<decltype(*std::begin(values))>;
  if (any && word == "any") return std::optional<Value>();
  for (const Value value : values) {
    if (WordFor(value) == word) return std::optional<Value>(value);
  }
  return Fail(Code::kInvalidArgument, "HOROVOD_ALGORITHMS: {}: no {} is called \"{}\"; known: {}{}", change.text, what,
              word, any ? "any, " : "", Joined(WordsFor(values)));
}

Status ParseBytes(std::string_view value, Change* change) {
  const auto range = ParseRange(value);
  if (!range) {
    return Fail(Code::kInvalidArgument,
                "HOROVOD_ALGORITHMS: {}: \"{}\" is no range of bytes: give LEAST..MOST, such as 4K..128K, ..128K or "
                "4K.., or none",
                change->text, value);
  }
  change->bytes = *range;
  return {};
}

Status ParseParameter(std::string_view word, std::string_view value, Change* change) {
  const auto named = std::ranges::find(kParameters, word, &NamedParameter::word);
  if (named == std::end(kParameters)) {
    return Fail(Code::kInvalidArgument, "HOROVOD_ALGORITHMS: {}: no parameter is called \"{}\"; known: {}",
                change->text, word, "chunk, slice, flight");
  }
  const auto size = ParseSize(value);
  if (!size || *size < kLeastParameter || *size > kMostParameter || *size % kParameterUnit != 0) {
    return Fail(Code::kInvalidArgument,
                "HOROVOD_ALGORITHMS: {}: \"{}\" is no size for {}: give a multiple of {} from {} to {}", change->text,
                value, word, kParameterUnit, SizeText(kLeastParameter), SizeText(kMostParameter));
  }
  change->parameter = named->member;
  change->size = *size;
  return {};
}

Result<Change> ParseOne(std::string_view text) {
  Change change;
  change.text = text;
  const size_t equals = text.find('=');
  const std::vector<std::string_view> path = Split(text.substr(0, equals), ':');
  if (equals == std::string_view::npos || path.size() < 3 || path.size() > 4) {
    return Fail(Code::kInvalidArgument,
                "HOROVOD_ALGORITHMS: \"{}\" is no entry: give operation:scope:algorithm=LEAST..MOST or "
                "operation:scope:algorithm:parameter=SIZE",
                text);
  }
  HVD_ASSIGN_OR_RETURN(change.op, Find(change, "operation", Operations(), path[0], true));
  HVD_ASSIGN_OR_RETURN(change.scope, Find(change, "scope", Scopes(), path[1], true));
  HVD_ASSIGN_OR_RETURN(const auto algorithm, Find(change, "algorithm", kAlgorithms, path[2], false));
  change.algorithm = *algorithm;
  const std::string_view value = text.substr(equals + 1);
  HVD_RETURN_IF_ERROR(path.size() == 4 ? ParseParameter(path[3], value, &change) : ParseBytes(value, &change));
  return change;
}

bool Concerns(const Change& change, const Line& line) {
  return line.algorithm == change.algorithm && line.op == change.op.value_or(line.op) &&
         line.scope == change.scope.value_or(line.scope);
}

// What the algorithms are called that such an operation has there.
std::string KnownFor(const Change& change, const std::vector<Line>& lines) {
  std::vector<std::string_view> words;
  for (const Line& line : lines) {
    const std::string_view word = WordFor(line.algorithm);
    if (line.op != change.op.value_or(line.op) || line.scope != change.scope.value_or(line.scope)) continue;
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return Joined(words);
}

uint64_t LimitOf(Algorithm algorithm, const Limits& limits) {
  if (algorithm == Algorithm::kTiny) return kTinyBytes;
  return algorithm == Algorithm::kInline ? limits.eager_bytes : kNoLimit;
}

Status CheckRange(const Change& change, const Limits& limits) {
  const uint64_t limit = LimitOf(change.algorithm, limits);
  if (change.bytes.empty() || (change.bytes.most == kNoLimit ? change.bytes.least : change.bytes.most) <= limit) {
    return {};
  }
  return Fail(Code::kInvalidArgument, "HOROVOD_ALGORITHMS: {}: {} takes at most {} bytes{}", change.text,
              WordFor(change.algorithm), limit,
              change.algorithm == Algorithm::kInline ? ": the eager limit (HOROVOD_EAGER_LIMIT)" : "");
}

Status SetParameter(const Change& change, std::vector<Line>* lines) {
  for (Line& line : *lines) {
    if (!Concerns(change, line)) continue;
    // Staging areas are as large as HOROVOD_CHUNK_BYTES says, for all operations.
    if (line.parameters.*change.parameter == 0 || line.algorithm == Algorithm::kStaged) {
      return Fail(Code::kInvalidArgument, "HOROVOD_ALGORITHMS: {}: {} has no such parameter to set{}", change.text,
                  WordFor(line.algorithm),
                  line.algorithm == Algorithm::kStaged ? "; HOROVOD_CHUNK_BYTES is its chunk" : "");
    }
    line.parameters.*change.parameter = change.size;
  }
  return {};
}

}  // namespace

std::string WithoutBlanks(std::string_view text) {
  std::string compact(text);
  std::erase_if(compact, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  return compact;
}

Result<std::vector<Change>> ParseChanges(std::string_view text) {
  std::vector<Change> changes;
  std::vector<std::string_view> seen;
  const std::string compact = WithoutBlanks(text);
  for (const std::string_view entry : Split(compact, ';')) {
    if (entry.empty()) continue;
    HVD_ASSIGN_OR_RETURN(Change change, ParseOne(entry));
    const std::string_view path = entry.substr(0, entry.find('='));
    if (std::ranges::find(seen, path) != seen.end()) {
      return Fail(Code::kInvalidArgument, "HOROVOD_ALGORITHMS: {}: {} is given twice", entry, path);
    }
    seen.push_back(path);
    changes.push_back(std::move(change));
  }
  return changes;
}

Status ApplyChanges(const std::vector<Change>& changes, const Limits& limits, std::vector<Line>* lines) {
  const std::vector<Line> known = *lines;
  for (const Change& change : changes) {
    if (std::ranges::none_of(known, [&](const Line& line) { return Concerns(change, line); })) {
      return Fail(Code::kInvalidArgument, "HOROVOD_ALGORITHMS: {}: {} is not for that; known there: {}", change.text,
                  WordFor(change.algorithm), KnownFor(change, known));
    }
    if (change.parameter != nullptr) {
      HVD_RETURN_IF_ERROR(SetParameter(change, lines));
    } else {
      HVD_RETURN_IF_ERROR(CheckRange(change, limits));
    }
  }
  for (const Change& change : changes) {
    if (change.parameter != nullptr) continue;
    std::vector<Line> first;
    for (Line line : *lines) {
      if (!Concerns(change, line)) continue;
      if (change.bytes.empty() && line.last_resort) {
        return Fail(Code::kInvalidArgument,
                    "HOROVOD_ALGORITHMS: {}: {} takes what nothing else takes; give the others the sizes instead",
                    change.text, WordFor(line.algorithm));
      }
      line.bytes = {change.bytes.least, std::min(change.bytes.most, LimitOf(line.algorithm, limits))};
      line.last_resort = false;
      line.on_trial = false;  // it is wanted
      // One that an entry before gave it already has, too, if it is a last resort.
      if (std::ranges::find(first, line) == first.end()) first.push_back(line);
    }
    std::erase_if(*lines, [&](const Line& line) { return Concerns(change, line) && !line.last_resort; });
    if (!change.bytes.empty()) lines->insert(lines->begin(), first.begin(), first.end());
  }
  return {};
}

std::string ChangesBetween(const Table& from, const Table& to, Scope scope, int members) {
  std::vector<std::string> entries;
  for (const OpKind op : Operations()) {
    const auto before = from.For(op, scope, members);
    const auto after = to.For(op, scope, members);
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].algorithm == Algorithm::kStaged) continue;  // HOROVOD_CHUNK_BYTES
      for (const NamedParameter& parameter : kParameters) {
        const size_t size = after[i].parameters.*parameter.member;
        if (size == before[i].parameters.*parameter.member) continue;
        std::string entry = fmt::format("any:{}:{}:{}={}", WordFor(scope), WordFor(before[i].algorithm), parameter.word,
                                        SizeText(size));
        if (std::ranges::find(entries, entry) == entries.end()) entries.push_back(std::move(entry));
      }
    }
  }
  return fmt::format("{}", fmt::join(entries, ";"));
}

std::string SizeText(uint64_t bytes) {
  constexpr std::string_view kUnits = "KMG";
  int unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < static_cast<int>(kUnits.size())) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", bytes) : fmt::format("{}{}", bytes, kUnits[unit - 1]);
}

}  // namespace hvd::algorithms
