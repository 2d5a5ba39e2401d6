// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/agent_options.h"

#include <algorithm>
#include <charconv>

#include "hvd/base/suggest.h"
#include "hvd/net/address.h"

namespace hvd::launch {
namespace {

const std::vector<std::string> kFlags{"--from-stdin",    "--driver", "--token-file", "--host", "--help",
                                      "--start-timeout", "-h"};

Result<double> ParseSeconds(std::string_view name, std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size() && seconds >= 0 && seconds <= 1e6) return seconds;
  return Fail(Code::kInvalidArgument, "agent: {} {}: expected a number of seconds", name, text);
}

void Split(std::string_view text, std::vector<std::string>* parts) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts->emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

Status Check(const AgentOptions& options) {
  if (options.from_stdin || options.help) return {};
  if (options.addresses.empty()) {
    return Fail(Code::kInvalidArgument,
                "agent: --driver is missing: the address that horovodrun --no-ssh printed, --driver HOST:PORT");
  }
  for (const std::string& address : options.addresses) {
    const auto where = net::ParseHostPort(address);
    if (!where || where->port == 0) {
      return Fail(Code::kInvalidArgument, "agent: --driver {}: expected HOST:PORT, as horovodrun --no-ssh printed it",
                  address);
    }
  }
  if (!options.token) {
    return Fail(Code::kInvalidArgument,
                "agent: --token-file is missing: a copy of the file that horovodrun --no-ssh named");
  }
  return {};
}

}  // namespace

Result<AgentOptions> ParseAgentOptions(const std::vector<std::string>& words, const Environment& environment) {
  AgentOptions options;
  std::string token_file = environment.Get("HOROVOD_TOKEN_FILE").value_or("");
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].starts_with("--") ? words[i].find('=') : std::string::npos;
    const std::string name = words[i].substr(0, equals);
    if (std::ranges::find(kFlags, name) == kFlags.end()) {
      return Fail(Code::kInvalidArgument, "agent: unknown word {}{}", name, DidYouMean(name, kFlags));
    }
    if (name == "--from-stdin" || name == "--help" || name == "-h") {
      (name == "--from-stdin" ? options.from_stdin : options.help) = true;
      continue;
    }
    if (equals == std::string::npos && i + 1 == words.size()) {
      return Fail(Code::kInvalidArgument, "agent: {}: needs a value", name);
    }
    const std::string value = equals != std::string::npos ? words[i].substr(equals + 1) : words[++i];
    if (name == "--driver") Split(value, &options.addresses);
    if (name == "--host") options.host = value;
    if (name == "--token-file") token_file = value;
    if (name == "--start-timeout") {
      HVD_ASSIGN_OR_RETURN(options.timeout_s, ParseSeconds(name, value));
    }
  }
  if (!token_file.empty() && !options.from_stdin && !options.help) {
    HVD_ASSIGN_OR_RETURN(options.token, net::Token::Load(token_file));
  }
  HVD_RETURN_IF_ERROR(Check(options));
  return options;
}

Status TakeTold(std::string_view text, AgentOptions* options) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) break;
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, space);
    const std::string_view value = line.substr(std::min(space + 1, line.size()));
    if (word == "token") {
      HVD_ASSIGN_OR_RETURN(options->token, net::Token::FromHex(value));
    } else if (word == "host") {
      options->host = value;
    } else if (word == "address") {
      options->addresses.emplace_back(value);
    } else if (word == "timeout") {
      HVD_ASSIGN_OR_RETURN(options->timeout_s, ParseSeconds(word, value));
    } else if (word == "silence") {
      HVD_ASSIGN_OR_RETURN(options->silence_s, ParseSeconds(word, value));
    }
  }
  if (options->token && !options->addresses.empty()) return {};
  return Fail(Code::kInvalidArgument, "agent: nothing of use came through stdin: it is for horovodrun to start this");
}

std::string AgentHelpText() {
  return "usage: horovodrun agent --driver ADDRESS[,ADDRESS...] --token-file FILE [--host NAME] [--start-timeout S]\n\n"
         "Runs the ranks of this host for a job that was started elsewhere by `horovodrun --no-ssh`, which prints the\n"
         "address and the token file. Give this host a copy of that file, mode 0600.\n\n"
         "  --host NAME          what the job's host list calls this host (its host name, or an address of its own)\n"
         "  --start-timeout S    how long to look for horovodrun (30)\n";
}

}  // namespace hvd::launch
