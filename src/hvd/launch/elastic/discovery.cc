// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/elastic/discovery.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace hvd::launch::elastic {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);
constexpr Duration kLimit = std::chrono::seconds(10);
constexpr size_t kMostOutput = 1 << 20;
constexpr const char* kShell = "/bin/sh";

// The last line that says something.
std::string LastLine(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const size_t line = text.rfind('\n');
  return std::string(text.substr(line == std::string_view::npos ? 0 : line + 1));
}

}  // namespace

Result<std::vector<Host>> ReadHosts(std::string_view text, std::string_view script, std::optional<int> slots) {
  std::string list;  // as of -H
  std::vector<std::string> seen;
  while (!text.empty()) {
    std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) line.pop_back();
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.empty() || std::ranges::count(seen, line) > 0) continue;
    if (line.find(',') != std::string::npos) {
      return Fail(Code::kInvalidArgument, "--host-discovery-script {}: '{}': expected one HOST or HOST:SLOTS per line",
                  script, line);
    }
    seen.push_back(line);
    list += (list.empty() ? "" : ",") + line;
  }
  if (list.empty()) return std::vector<Host>();
  HVD_ASSIGN_OR_RETURN(auto hosts, ParseHosts(list, fmt::format("--host-discovery-script {}:", script)));
  for (Host& host : hosts) {
    if (host.slots > 0) continue;
    if (!slots) {
      return Fail(Code::kInvalidArgument,
                  "--host-discovery-script {}: '{}' has no number of slots: print {}:SLOTS, or give --slots-per-host N",
                  script, host.name, host.name);
    }
    host.slots = *slots;
  }
  return hosts;
}

Discovery::Discovery(Settings settings, const Inherited& inherited, Warden* warden, loop::Loop* loop, Events events)
    : settings_(std::move(settings)), inherited_(inherited), warden_(warden), loop_(loop), events_(std::move(events)) {}

Discovery::~Discovery() { Stop(); }

void Discovery::Stop() {
  stopped_ = true;
  if (timer_) loop_->Cancel(*timer_);
  timer_.reset();
  if (!child_) return;
  for (const net::Fd* fd : {&child_->out, &child_->err}) {
    if (*fd) loop_->Unwatch(fd->get());
  }
  ::kill(-child_->pid, SIGKILL);
  child_.reset();
}

void Discovery::Poll() {
  if (child_ || stopped_) return;
  if (const Status started = Start(); !started) OnAnswer(Fail(started.error()));
}

Status Discovery::Start() {
  out_.clear();
  err_.clear();
  is_too_late_ = false;
  HVD_ASSIGN_OR_RETURN(child_,
                       Spawn(-1, kShell, {kShell, "-c", settings_.script}, settings_.environment, inherited_, -1));
  warden_->Watch(child_->pid);
  After(kLimit, &Discovery::OnTimeout);
  HVD_RETURN_IF_ERROR(loop_->Watch(child_->out.get(), EPOLLIN, [this](uint32_t) { Read(&child_->out, &out_); }));
  return loop_->Watch(child_->err.get(), EPOLLIN, [this](uint32_t) { Read(&child_->err, &err_); });
}

void Discovery::Read(net::Fd* from, std::string* into) {
  char buffer[4096];
  while (*from) {
    const ssize_t count = ::read(from->get(), buffer, sizeof buffer);
    if (count < 0) return;
    if (count == 0) {
      loop_->Unwatch(from->get());
      return from->Reset();
    }
    if (into->size() < kMostOutput) into->append(buffer, static_cast<size_t>(count));
  }
}

void Discovery::OnTimeout() {
  is_too_late_ = true;
  if (child_) ::kill(-child_->pid, SIGKILL);
}

bool Discovery::OnChild(int pid, int status) {
  if (!child_ || child_->pid != pid) return false;
  Read(&child_->out, &out_);
  Read(&child_->err, &err_);
  for (const net::Fd* fd : {&child_->out, &child_->err}) {
    if (*fd) loop_->Unwatch(fd->get());
  }
  child_.reset();
  const auto failed = [&](const std::string& how) {
    const std::string last = LastLine(err_);
    OnAnswer(Fail(Code::kInvalidArgument, "--host-discovery-script {}: it {}{}{}", settings_.script, how,
                  last.empty() ? "" : ": ", last));
  };
  if (is_too_late_) {
    failed("did not end within 10 s");
  } else if (WIFSIGNALED(status)) {
    failed(fmt::format("was ended by signal {}", WTERMSIG(status)));
  } else if (WEXITSTATUS(status) != 0) {
    failed(fmt::format("failed with exit code {}", WEXITSTATUS(status)));
  } else {
    auto hosts = ReadHosts(out_, settings_.script, settings_.slots);
    OnAnswer(hosts && settings_.accept ? settings_.accept(std::move(*hosts)) : std::move(hosts));
  }
  return true;
}

void Discovery::OnAnswer(Result<std::vector<Host>> answer) {
  After(kInterval, &Discovery::Poll);
  if (!answer) {
    next_.reset();
    if (!hosts_) return events_.failed(answer.error());
    if (!std::exchange(has_failed_, true)) {
      events_.warns(fmt::format("{}; the list of hosts stays as it is", answer.error().message));
    }
    return;
  }
  has_failed_ = false;
  const bool same = next_ == *answer;
  next_ = std::move(*answer);
  if (hosts_ == next_ || (hosts_ && !same)) return;
  hosts_ = next_;
  events_.found(*hosts_);
}

void Discovery::After(Duration wait, void (Discovery::*call)()) {
  if (timer_) loop_->Cancel(*timer_);
  timer_ = loop_->At(loop_->Now() + wait, [this, call] {
    timer_.reset();
    (this->*call)();
  });
}

}  // namespace hvd::launch::elastic
