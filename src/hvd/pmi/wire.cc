// SPDX-License-Identifier: Apache-2.0
#include "hvd/pmi/wire.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string_view>

#include "hvd/base/at_exit.h"

namespace hvd::pmi {
namespace {

constexpr size_t kLongestLine = 64 << 10;

class Conversation {
 public:
  Conversation(int fd, Time deadline) : fd_(fd), deadline_(deadline) {}

  // Sends a line and gives the answer, which begins "cmd=`answer`".
  Result<std::string> Ask(const std::string& line, std::string_view answer) {
    HVD_RETURN_IF_ERROR(Write(line + "\n"));
    HVD_ASSIGN_OR_RETURN(std::string text, ReadLine());
    if (!text.starts_with(fmt::format("cmd={}", answer)) || (Find(text, "rc") != "" && Find(text, "rc") != "0")) {
      return Fail(Code::kUnknown, "the launcher answered PMI's '{}' with '{}'", line.substr(0, line.find(' ')), text);
    }
    return text;
  }

  // The value of `name` in "cmd=x name=value ...".
  static std::string Find(std::string_view line, std::string_view name) {
    while (!line.empty()) {
      const std::string_view word = line.substr(0, line.find(' '));
      if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
        return std::string(word.substr(name.size() + 1));
      }
      line.remove_prefix(std::min(word.size() + 1, line.size()));
    }
    return "";
  }

 private:
  Status Wait(short events) {
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - SteadyClock().Now()).count();
      if (left < 0) return Fail(Code::kDeadlineExceeded, "not all ranks came to PMI's barrier in time");
      pollfd wanted{fd_, events, 0};
      const int ready = ::poll(&wanted, 1, static_cast<int>(std::min<long long>(left + 1, 1000)));
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return Lost();
    }
  }
  tl::unexpected<Error> Lost() const {
    return Fail(Code::kUnknown, "lost the launcher's PMI at descriptor {}: {}", fd_, std::strerror(errno));
  }
  Status Write(std::string_view text) {
    while (!text.empty()) {
      HVD_RETURN_IF_ERROR(Wait(POLLOUT));
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Lost();
      text.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }
  // By single bytes: what follows the line may be for somebody else who uses the descriptor.
  Result<std::string> ReadLine() {
    std::string line;
    while (line.size() < kLongestLine) {
      HVD_RETURN_IF_ERROR(Wait(POLLIN));
      char byte = 0;
      const ssize_t count = ::read(fd_, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return Lost();
      if (byte == '\n') return line;
      line += byte;
    }
    return Fail(Code::kUnknown, "the launcher's PMI sent a line without an end");
  }

  const int fd_;
  const Time deadline_;
};

constexpr auto kGoodbyeTime = std::chrono::seconds(5);

Status BeginOnce(int fd, Conversation* conversation) {
  static std::mutex mutex;
  static bool begun = false;
  const std::lock_guard lock(mutex);
  if (begun) return {};
  HVD_RETURN_IF_ERROR(conversation->Ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"));
  begun = true;
  AtExit([fd](int status) {
    if (status != 0) return;
    Conversation last(fd, SteadyClock().Now() + kGoodbyeTime);
    (void)last.Ask("cmd=finalize", "finalize_ack");
  });
  return {};
}

}  // namespace

Result<std::string> ShareByWire(int fd, int rank, const std::string& key, const std::string& text, Time deadline) {
  Conversation conversation(fd, deadline);
  HVD_RETURN_IF_ERROR(BeginOnce(fd, &conversation));
  HVD_ASSIGN_OR_RETURN(const std::string named, conversation.Ask("cmd=get_my_kvsname", "my_kvsname"));
  const std::string space = Conversation::Find(named, "kvsname");
  if (rank == 0) {
    HVD_RETURN_IF_ERROR(
        conversation.Ask(fmt::format("cmd=put kvsname={} key={} value={}", space, key, text), "put_result"));
  }
  HVD_RETURN_IF_ERROR(conversation.Ask("cmd=barrier_in", "barrier_out"));
  if (rank == 0) return text;
  HVD_ASSIGN_OR_RETURN(const std::string got,
                       conversation.Ask(fmt::format("cmd=get kvsname={} key={}", space, key), "get_result"));
  return Conversation::Find(got, "value");
}

}  // namespace hvd::pmi
