// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/output/rank_files.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "hvd/base/planted_link.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Fail(Code::kInvalidArgument, "{}: cannot make this folder: {}", path, error.message());
  return {};
}

}  // namespace

std::string RankFiles::RankFolder(int rank) const {
  const size_t width = fmt::formatted_size("{}", ranks_ - 1);
  return fmt::format("{}/rank.{:0{}}", folder_, rank, width);
}

Result<RankFiles> RankFiles::Create(const std::string& folder, int ranks) {
  RankFiles files;
  files.folder_ = folder;
  files.ranks_ = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    HVD_RETURN_IF_ERROR(files.Add());
  }
  return files;
}

Status RankFiles::Add() {
  const std::string mine = RankFolder(ranks());
  HVD_RETURN_IF_ERROR(MakeFolder(mine));
  net::Fd opened[2];
  const char* const streams[] = {"stdout", "stderr"};
  for (int i = 0; i < 2; ++i) {
    const std::string path = fmt::format("{}/{}", mine, streams[i]);
    HVD_ASSIGN_OR_RETURN(const int fd, OpenToWrite(path));
    opened[i].Reset(fd);
  }
  for (net::Fd& fd : opened) files_.push_back(std::move(fd));
  return {};
}

Result<RankFiles> RankFiles::CreateDated(const std::string& parent, int ranks) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", &parts);
  const std::string name = fmt::format("{}-{}", date, ::getpid());
  HVD_ASSIGN_OR_RETURN(RankFiles files, Create(fmt::format("{}/{}", parent, name), ranks));
  // A link is changed in one step, so that two jobs that start together leave a good one.
  const std::string fresh = fmt::format("{}/.latest.{}", parent, ::getpid());
  const std::string latest = parent + "/latest";
  std::error_code error;
  std::filesystem::create_symlink(name, fresh, error);
  if (!error) std::filesystem::rename(fresh, latest, error);
  if (error) std::filesystem::remove(fresh, error);
  return files;
}

Status RankFiles::Append(int rank, bool is_stderr, std::string_view bytes) {
  net::Fd& fd = files_[2 * rank + (is_stderr ? 1 : 0)];
  while (fd && !bytes.empty()) {
    const ssize_t count = ::write(fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      fd.Reset();
      return Fail(Code::kResourceExhausted, "{}/{}: {}; the rest of it is not kept", RankFolder(rank),
                  is_stderr ? "stderr" : "stdout", net::ErrnoText(error));
    }
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace hvd::launch
