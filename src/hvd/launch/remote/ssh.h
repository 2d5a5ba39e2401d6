// SPDX-License-Identifier: Apache-2.0
#pragma once
// Starts the agent of another host by the user's own ssh: their configuration, keys, agent and known hosts decide. All
// that ssh is given on its command line is how to find the agent. What is secret goes to the agent's stdin, once it has
// said who it is:
//
//   agent:       hvd-agent VERSION                          (stdout; other lines are the login's noise)
//   horovodrun:  token HEX, host NAME, address A ..., an empty line
//   agent:       hvd-agent failed: WHY                      (if it cannot come back to us)
//
// Thread safety: none; on the job's loop.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/output/tail.h"
#include "hvd/launch/run/spawn.h"
#include "hvd/loop/loop.h"

namespace hvd::launch {

inline constexpr std::string_view kAgentLine = "hvd-agent ";
inline constexpr std::string_view kAgentMissing = "missing";
inline constexpr std::string_view kAgentFailed = "failed: ";

struct SshOptions {
  std::string program;  // path of ssh
  std::optional<int64_t> port;
  std::optional<std::string> identity;
};

// argv of ssh. `self`: the path of this program, looked for there first, then in PATH.
std::vector<std::string> SshArguments(const SshOptions& options, const std::string& host, const std::string& self);
// One line of advice for what ssh said; empty: none.
std::string SshAdvice(std::string_view words, const std::string& host);

class Ssh {
 public:
  struct Events {
    std::function<void(const std::string& words)> agent_says;  // a line of the agent, without kAgentLine
    std::function<void(const std::string& line)> complains;    // a line of stderr
  };
  static Result<std::unique_ptr<Ssh>> Start(const std::vector<std::string>& arguments, const std::string& program,
                                            const std::vector<std::string>& environment, const Inherited& inherited,
                                            loop::Loop* loop, Events events);
  ~Ssh();
  Ssh(const Ssh&) = delete;
  Ssh& operator=(const Ssh&) = delete;

  // To the agent's stdin, which is closed after it.
  Status Tell(std::string_view words);
  int pid() const { return child_.pid; }
  // It ended (waitpid): takes what is left of its words.
  void OnExit();
  // Its last words on stderr.
  const Tail& tail() const { return tail_; }

 private:
  Ssh(loop::Loop* loop, Events events) : loop_(loop), events_(std::move(events)) {}
  void Read(net::Fd& fd, std::string& line, bool is_error);
  void OnLine(const std::string& line, bool is_error);

  loop::Loop* const loop_;
  const Events events_;
  Child child_;
  net::Fd input_;
  std::string out_, err_;
  Tail tail_;
  bool exited_ = false;
};

}  // namespace hvd::launch
