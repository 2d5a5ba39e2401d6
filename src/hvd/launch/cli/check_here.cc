// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/check_here.h"

#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "hvd/base/planted_link.h"
#include "hvd/launch/plan/mpirun.h"
#include "hvd/launch/plan/paths.h"
#include "hvd/net/address.h"
#include "hvd/net/interfaces.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

// ssh itself knows what '~' and '%' mean in it.
Status CheckIdentity(const std::string& path) {
  if (path.starts_with('~') || path.find('%') != std::string::npos) return {};
  if (IsFolder(path)) return Fail(Code::kInvalidArgument, "-i {}: expected a file with a key, this is a folder", path);
  if (::access(path.c_str(), R_OK) == 0) return {};
  return Fail(Code::kInvalidArgument, "-i {}: {}; expected a file with a key", path, net::ErrnoText(errno));
}

Status CheckInterface(const std::string& name) {
  if (::if_nametoindex(name.c_str()) != 0) return {};
  std::vector<std::string> known;
  for (const net::OwnAddress& own : net::OwnAddresses()) {
    if (std::ranges::count(known, own.interface_name) == 0) known.push_back(own.interface_name);
  }
  return Fail(Code::kInvalidArgument, "--network-interfaces {}: there is no such interface here; there is {}", name,
              fmt::join(known, ", "));
}

Status CheckDriverAddress(const std::string& text) {
  const auto where = net::ParseHostPort(text);
  const auto found = where ? net::Resolve(*where) : Result<std::vector<net::Address>>(Fail(where.error()));
  if (!found) return Fail(Code::kInvalidArgument, "--driver-address: {}", found.error().message);
  const std::vector<net::OwnAddress> own = net::OwnAddresses();
  for (const net::Address& address : *found) {
    if (address.IsLoopback()) continue;
    if (std::ranges::any_of(own, [&](const auto& one) { return one.address.host() == address.host(); })) continue;
    return Fail(Code::kInvalidArgument, "--driver-address {}: this machine does not have the address {}", text,
                address.host());
  }
  return {};
}

// Without making the file: whether there is one tells whether there was a job.
Status CheckWritable(std::string_view flag, const std::string& path) {
  const auto bad = [&](std::string_view why) {
    return Fail(Code::kInvalidArgument, "{} {}: cannot be written ({})", flag, path, why);
  };
  if (IsFolder(path)) return bad("this is a folder");
  if (auto link = CheckNoPlantedLink(path); !link) return bad(link.error().message);
  if (::access(path.c_str(), W_OK) == 0) return {};
  if (errno != ENOENT) return bad(net::ErrnoText(errno));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0) return {};
  return bad(fmt::format("{}: {}", folder.empty() ? "the working folder" : folder, net::ErrnoText(errno)));
}

}  // namespace

List InterfacesOf(const Options& options) {
  List names;
  for (const std::string& given : options.network_interfaces) {
    for (std::string_view rest = given; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (comma > 0) names.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return names;
}

Status CheckHere(const Options& options) {
  if (options.ssh_identity_file) HVD_RETURN_IF_ERROR(CheckIdentity(*options.ssh_identity_file));
  if (options.report_file) HVD_RETURN_IF_ERROR(CheckWritable("--report-file", *options.report_file));
  if (options.timeline_filename && *options.timeline_filename != "DYNAMIC") {
    HVD_RETURN_IF_ERROR(CheckWritable("--timeline-filename", *options.timeline_filename));
  }
  if (options.driver_address) HVD_RETURN_IF_ERROR(CheckDriverAddress(*options.driver_address));
  // mpirun takes networks ("10.0.0.0/8"), too.
  if (UsesMpirun(options)) return {};
  for (const std::string& name : InterfacesOf(options)) HVD_RETURN_IF_ERROR(CheckInterface(name));
  return {};
}

}  // namespace hvd::launch
