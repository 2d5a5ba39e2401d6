// SPDX-License-Identifier: Apache-2.0
#include "tests/support/job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "tests/support/request.h"

namespace hvd::test {
namespace {

std::atomic<int> g_job{0};

struct Sets {
  std::vector<int32_t> sizes;
  std::vector<int32_t> ranks;
};

Sets Flatten(const std::vector<std::vector<int>>& sets) {
  Sets flat;
  for (const auto& set : sets) {
    flat.sizes.push_back(static_cast<int32_t>(set.size()));
    flat.ranks.insert(flat.ranks.end(), set.begin(), set.end());
  }
  return flat;
}

hvd_init_options Options(int rank, int size, const std::string& rendezvous, const Sets& sets) {
  hvd_init_options options;
  hvd_init_options_default(&options);
  options.rank = rank;
  options.size = size;
  options.rendezvous = rendezvous.c_str();
  options.process_set_count = static_cast<int32_t>(sets.sizes.size());
  options.process_set_sizes = sets.sizes.data();
  options.process_set_ranks = sets.ranks.data();
  return options;
}

// Started by mpirun as one of `started` ranks: tests of other sizes are not for this job.
void RunAsRank(int started, int size, const std::function<void(int, hvd_context*)>& body, const Sets& sets) {
  if (started != size) GTEST_SKIP() << "needs " << size << " ranks";
  hvd_init_options options = Options(-1, -1, "", sets);
  options.rendezvous = nullptr;
  hvd_context* ctx = nullptr;
  ASSERT_EQ(hvd_init(&options, &ctx), HVD_OK) << hvd_last_error();
  int32_t rank = -1;
  hvd_query(ctx, HVD_RANK, &rank);
  body(rank, ctx);
  hvd_shutdown(ctx);
}

std::string TestHosts() {
  const char* const hosts = getenv("HVD_TEST_HOSTS");
  return hosts != nullptr ? hosts : "";
}

}  // namespace

std::vector<std::vector<int>> RanksByHost(int size) {
  const std::string hosts = TestHosts();
  std::vector<std::vector<int>> ranks;
  std::map<char, size_t> seen;
  for (int rank = 0; rank < size; ++rank) {
    const char host = hosts.empty() ? 'a' : hosts[rank % hosts.size()];
    const size_t index = seen.try_emplace(host, ranks.size()).first->second;
    if (index == ranks.size()) ranks.emplace_back();
    ranks[index].push_back(rank);
  }
  return ranks;
}

void RunThreads(int size, const std::function<void(int, hvd_context*)>& body,
                const std::vector<std::vector<int>>& sets) {
  if (const char* started = getenv("HVD_TEST_BY_LAUNCHER")) return RunAsRank(atoi(started), size, body, Flatten(sets));
  const std::string rendezvous = "memory:test-" + std::to_string(++g_job);
  const Sets flat = Flatten(sets);
  const std::string hosts = TestHosts();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      hvd_init_options options = Options(rank, size, rendezvous, flat);
      const std::string host = hosts.empty() ? hosts : hosts.substr(rank % hosts.size(), 1);
      if (!hosts.empty()) options.host_id = host.c_str();
      hvd_context* ctx = nullptr;
      ASSERT_EQ(hvd_init(&options, &ctx), HVD_OK) << hvd_last_error();
      body(rank, ctx);
      hvd_shutdown(ctx);
    });
  }
  for (auto& thread : threads) thread.join();
}

std::vector<ProcessResult> RunProcesses(int size, const std::function<int(int)>& body,
                                        const std::function<void(const std::vector<int>&)>& parent,
                                        const ProcessOptions& given) {
  char folder[] = "/tmp/hvd-test-XXXXXX";
  EXPECT_NE(mkdtemp(folder), nullptr);
  const std::string rendezvous = given.rendezvous.empty() ? std::string("file://") + folder : given.rendezvous;
  const Sets flat = Flatten(given.sets);
  std::vector<int> pids;
  for (int rank = 0; rank < size; ++rank) {
    const int pid = fork();
    if (pid == 0) {
      if (given.prepare) given.prepare(rank);
      hvd_init_options options = Options(rank, size, rendezvous, flat);
      if (!given.host_ids.empty()) options.host_id = given.host_ids[rank].c_str();
      if (hvd_init(&options, nullptr) != HVD_OK) {
        fprintf(stderr, "rank %d: init: %s\n", rank, hvd_last_error());
        _exit(98);
      }
      const int code = body(rank);
      hvd_shutdown(nullptr);
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 99 : code);
    }
    pids.push_back(pid);
  }
  if (parent) parent(pids);
  std::vector<ProcessResult> results(size);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(given.limit_s);
  for (int rank = 0; rank < size; ++rank) {
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pids[rank], 0));
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    if (fd >= 0 && poll(&wait, 1, left > 0 ? static_cast<int>(left) : 0) == 0) {
      results[rank].killed = true;
      kill(pids[rank], SIGKILL);
    }
    waitpid(pids[rank], &results[rank].status, 0);
    if (fd >= 0) close(fd);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return results;
}

int Sum(hvd_context* ctx, const std::string& name, float* data, size_t count, int set) {
  Request request(HVD_ALLREDUCE, name, {static_cast<int64_t>(count)}, data);
  request->process_set = set;
  return hvd_run(ctx, request, nullptr);
}

int FreePort() {
  hvd_store_server* server = nullptr;
  int32_t port = 0;
  EXPECT_EQ(hvd_store_serve("127.0.0.1:0", nullptr, &server, &port), HVD_OK) << hvd_last_error();
  hvd_store_server_free(server);
  return port;
}

}  // namespace hvd::test
