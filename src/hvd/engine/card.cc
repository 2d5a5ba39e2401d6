// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/card.h"

#include <array>
#include <charconv>

namespace hvd::engine {
namespace {

constexpr size_t kFields = 10;

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

template <typename Number>
bool Parse(std::string_view text, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string Encode(const Card& card) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", OneLine(card.version), OneLine(card.host_id),
                     OneLine(card.hostname), card.pid, OneLine(card.no_shm), OneLine(card.process_sets),
                     card.settings.eager_bytes, card.settings.chunk_bytes, card.settings.fusion_threshold,
                     card.settings.cache_capacity);
}

Result<Card> DecodeCard(std::string_view text) {
  std::array<std::string_view, kFields> fields;
  for (size_t i = 0; i < kFields; ++i) {
    const size_t end = text.find('\n');
    if ((end == std::string_view::npos) != (i == kFields - 1))
      return Fail(Code::kInvalidArgument, "a rank's card has no {} fields", kFields);
    fields[i] = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  Card card;
  card.version = fields[0];
  card.host_id = fields[1];
  card.hostname = fields[2];
  card.no_shm = fields[4];
  card.process_sets = fields[5];
  const bool good = Parse(fields[3], &card.pid) && Parse(fields[6], &card.settings.eager_bytes) &&
                    Parse(fields[7], &card.settings.chunk_bytes) && Parse(fields[8], &card.settings.fusion_threshold) &&
                    Parse(fields[9], &card.settings.cache_capacity);
  if (!good || card.pid <= 0 || card.settings.eager_bytes < 0 || card.settings.chunk_bytes < 64) {
    return Fail(Code::kInvalidArgument, "a rank's card has a field that is no number");
  }
  return card;
}

}  // namespace hvd::engine
