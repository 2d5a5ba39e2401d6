// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/elastic/messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

namespace hvd::launch::elastic {
namespace {

constexpr std::string_view kReady = "elastic/ready/", kCommitted = "elastic/committed/", kDone = "elastic/done/";

// Takes a number from the front of a text, and the space behind it.
template <typename T>
bool Take(std::string_view* text, T* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  if (text->starts_with(' ')) text->remove_prefix(1);
  return true;
}

template <typename T>
bool IsNumber(std::string_view text, T* number) {
  return Take(&text, number) && text.empty();
}

std::optional<ReadyNote> ReadReady(std::string_view text) {
  ReadyNote note;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    const std::string_view name = line.substr(0, space);
    std::string_view rest = line.substr(space + 1);
    bool good = true;
    if (name == "request") good = IsNumber(rest, &note.request);
    if (name == "generation") good = IsNumber(rest, &note.generation);
    if (name == "held") good = Take(&rest, &note.aligned) && IsNumber(rest, &note.commit);
    if (name == "cause") note.cause = rest;
    if (name == "unstarted") note.unstarted = rest;
    if (name == "sets") note.sets = rest;
    if (!good) return std::nullopt;
  }
  if (note.request < 1 || note.generation < 0 || note.aligned < 0 || note.commit < -1) return std::nullopt;
  return note;
}

}  // namespace

std::optional<Note> ReadNote(std::string_view key, std::string_view value) {
  Note note{};
  if (key.starts_with(kReady)) {
    auto ready = ReadReady(value);
    if (!ready || !IsNumber(key.substr(kReady.size()), &note.process)) return std::nullopt;
    note.kind = Note::Kind::kReady;
    note.ready = std::move(*ready);
    return note;
  }
  if (key.starts_with(kCommitted)) {
    note.kind = Note::Kind::kCommitted;
    const bool good = IsNumber(key.substr(kCommitted.size()), &note.process) && IsNumber(value, &note.generation);
    return good ? std::optional(note) : std::nullopt;
  }
  if (key.starts_with(kDone)) {
    note.kind = Note::Kind::kDone;
    return IsNumber(key.substr(kDone.size()), &note.process) ? std::optional(note) : std::nullopt;
  }
  // hvd/GENERATION/NAME/verdict, see engine/bootstrap/rendezvous_protocol.h
  if (!key.starts_with("hvd/") || !key.ends_with("/verdict") || value != "ok") return std::nullopt;
  note.kind = Note::Kind::kMet;
  key.remove_prefix(4);
  return IsNumber(key.substr(0, key.find('/')), &note.generation) ? std::optional(note) : std::nullopt;
}

std::string ViewKey(int process, int request) { return fmt::format("elastic/view/{}/{}", process, request); }
std::string NewsKey(int number) { return fmt::format("elastic/news/{}", number); }

std::string ViewText(const View& view, const Slot& slot, int news, std::string_view sets, std::string_view reason) {
  std::vector<int> members;
  for (const ViewMember& member : view.members) members.push_back(member.process);
  return fmt::format(
      "view\ngeneration {}\nranks {} {} {} {} {} {}\nmembers {}\nsynced {}\ncommit {}\nnews {}\nsets {}\nreason {}",
      view.generation, slot.rank, members.size(), slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size,
      fmt::join(members, " "), fmt::join(view.synced, " "), view.commit, news, sets, reason);
}

std::string LeaveText() { return "leave\n"; }

std::string NewsText(int generation, int count, News what) {
  return fmt::format("{} {} {}", generation, count, static_cast<int>(what));
}

}  // namespace hvd::launch::elastic
