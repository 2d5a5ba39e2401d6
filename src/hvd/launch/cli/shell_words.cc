// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/shell_words.h"

#include <algorithm>
#include <cctype>

namespace hvd::launch {
namespace {

bool IsPlain(char c) {
  constexpr std::string_view kHarmless = "%+,-./:=@_^";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || kHarmless.find(c) != std::string_view::npos;
}

}  // namespace

Result<std::vector<std::string>> SplitWords(std::string_view flag, std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      c == quote ? static_cast<void>(quote = 0) : word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) return Fail(Code::kInvalidArgument, "{} {}: a quotation mark is not closed", flag, text);
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string Quoted(std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, IsPlain)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) c == '\'' ? static_cast<void>(quoted += "'\\''") : quoted.push_back(c);
  return quoted + "'";
}

std::string Quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + Quoted(word);
  return line;
}

}  // namespace hvd::launch
