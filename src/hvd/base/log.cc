// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/log.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>

namespace hvd::log {
namespace {

std::atomic<int> g_level{static_cast<int>(Level::kWarning)};
std::atomic<int> g_rank{-1};
std::atomic<bool> g_hide_time{false};

constexpr std::array<std::string_view, 6> kNames{"trace", "debug", "info", "warning", "error", "fatal"};

std::string Time() {
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1000000;
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:06d}: ", fmt::localtime(std::chrono::system_clock::to_time_t(now)),
                     micros);
}

}  // namespace

bool SetLevel(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (lower != kNames[i]) continue;
    g_level.store(static_cast<int>(i), std::memory_order_relaxed);
    return true;
  }
  return false;
}

void SetRank(int rank) { g_rank.store(rank, std::memory_order_relaxed); }
void HideTime(bool hide) { g_hide_time.store(hide, std::memory_order_relaxed); }
bool Enabled(Level level) { return static_cast<int>(level) >= g_level.load(std::memory_order_relaxed); }

void Write(Level level, std::string_view text) {
  const char letter = "TDIWEF"[static_cast<int>(level)];
  const int rank = g_rank.load(std::memory_order_relaxed);
  const std::string who = rank >= 0 ? fmt::format(" [{}]", rank) : std::string();
  const std::string time = g_hide_time.load(std::memory_order_relaxed) ? std::string() : Time();
  const std::string line = fmt::format("[{}{} hvd]{}: {}\n", time, letter, who, text);
  const int fd = level <= Level::kInfo ? STDOUT_FILENO : STDERR_FILENO;
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
}

}  // namespace hvd::log
