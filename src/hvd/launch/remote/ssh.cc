// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/ssh.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

// Longer lines are cut: what comes here is for people.
constexpr size_t kLongestLine = 4096;

// For a POSIX shell, and those of other habits.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// The login shell may be any; what it is given is one command for sh.
std::string RemoteCommand(const std::string& self) {
  constexpr const char* kScript =
      "if test -x \"$0\"; then exec \"$0\" agent --from-stdin; fi; "
      "other=$(command -v horovodrun) && exec \"$other\" agent --from-stdin; "
      "echo hvd-agent missing; exit 127";
  return fmt::format("exec sh -c {} {}", Quoted(kScript), Quoted(self));
}

}  // namespace

std::vector<std::string> SshArguments(const SshOptions& options, const std::string& host, const std::string& self) {
  // BatchMode: nobody is there to answer a question. ControlMaster: one that is made here would outlive the job; one
  // that there is already is used.
  std::vector<std::string> words{options.program, "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no"};
  if (options.port) words.insert(words.end(), {"-p", fmt::format("{}", *options.port)});
  if (options.identity) words.insert(words.end(), {"-i", *options.identity});
  words.insert(words.end(), {"--", host, RemoteCommand(self)});
  return words;
}

// Users copy what is advised: names of hosts hold nothing that a shell reads (ParseHosts).
std::string SshAdvice(std::string_view words, const std::string& host) {
  const auto says = [&](std::string_view text) { return words.find(text) != std::string_view::npos; };
  if (says("Host key verification failed")) {
    return fmt::format("log in once by hand to accept its key (ssh {} true), or see your known_hosts", host);
  }
  if (says("Permission denied")) {
    return fmt::format("ssh {} true must work without a password: ssh-copy-id {}, ssh-add, or give -i KEYFILE", host,
                       host);
  }
  if (says("Could not resolve") || says("Name or service not known")) {
    return "see whether the name is right: getent hosts " + host;
  }
  if (says("Connection refused")) return "see whether sshd runs there, and on which port (-p PORT)";
  if (says("No route") || says("timed out") || says("unreachable")) {
    return "see whether the machine is up and the network lets you through: ssh -v " + host + " true";
  }
  return fmt::format("see what ssh -v {} true says", host);
}

Result<std::unique_ptr<Ssh>> Ssh::Start(const std::vector<std::string>& arguments, const std::string& program,
                                        const std::vector<std::string>& environment, const Inherited& inherited,
                                        loop::Loop* loop, Events events) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(Code::kResourceExhausted, "no pipe: {}", net::ErrnoText(errno));
  std::unique_ptr<Ssh> ssh(new Ssh(loop, std::move(events)));
  const net::Fd read_end(ends[0]);
  ssh->input_.Reset(ends[1]);
  // A failure to execute it shows in its exit code.
  HVD_ASSIGN_OR_RETURN(ssh->child_,
                       Spawn(-1, program, arguments, environment, inherited, -1, {.input = read_end.get()}));
  Ssh* self = ssh.get();
  HVD_RETURN_IF_ERROR(loop->Watch(self->child_.out.get(), EPOLLIN,
                                  [self](uint32_t) { self->Read(self->child_.out, self->out_, false); }));
  HVD_RETURN_IF_ERROR(loop->Watch(self->child_.err.get(), EPOLLIN,
                                  [self](uint32_t) { self->Read(self->child_.err, self->err_, true); }));
  return ssh;
}

Ssh::~Ssh() {
  for (const net::Fd* fd : {&child_.out, &child_.err}) {
    if (*fd) loop_->Unwatch(fd->get());
  }
  if (child_.pid != 0 && !exited_) ::kill(-child_.pid, SIGTERM);
}

Status Ssh::Tell(std::string_view words) {
  // Far less than a pipe holds, so this never waits.
  const ssize_t written = ::write(input_.get(), words.data(), words.size());
  input_.Reset();
  if (written == static_cast<ssize_t>(words.size())) return {};
  return Fail(Code::kUnknown, "ssh does not take what is for the agent");
}

void Ssh::OnExit() {
  exited_ = true;
  Read(child_.out, out_, false);
  Read(child_.err, err_, true);
}

void Ssh::Read(net::Fd& fd, std::string& line, bool is_error) {
  char buffer[4096];
  while (fd) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    if (count == 0) {
      loop_->Unwatch(fd.get());
      fd.Reset();
      if (!line.empty()) OnLine(std::exchange(line, {}), is_error);
      return;
    }
    for (const char c : std::string_view(buffer, static_cast<size_t>(count))) {
      if (c == '\n') {
        OnLine(std::exchange(line, {}), is_error);
      } else if (c != '\r' && line.size() < kLongestLine) {
        line.push_back(c);
      }
    }
  }
}

void Ssh::OnLine(const std::string& line, bool is_error) {
  if (is_error) {
    if (line.empty()) return;
    tail_.Add(line);
    events_.complains(line);
  } else if (line.starts_with(kAgentLine)) {
    events_.agent_says(line.substr(kAgentLine.size()));
  }
}

}  // namespace hvd::launch
