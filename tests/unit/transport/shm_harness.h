// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks as forked processes that meet through a store in shared memory; for tests of life and death.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "hvd/rendezvous/store.h"
#include "hvd/transport/shm/arena.h"
#include "hvd/transport/shm/window.h"

namespace hvd::transport::testing {

inline int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
inline Time In(double seconds) { return std::chrono::steady_clock::now() + Seconds(seconds); }
inline constexpr int kMostRanks = 128;

// Memory that a test and its forked ranks share; zeroed.
template <typename T>
class SharedPage {
 public:
  SharedPage()
      : value_(static_cast<T*>(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  }
  ~SharedPage() { ::munmap(value_, sizeof(T)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* const value_;
};

class SharedStore final : public rendezvous::Store {
 public:
  Status Set(const std::string& key, const std::string& value) override {
    Locked([&] {
      Entry* entry = Find(key);
      if (entry == nullptr) entry = Find("");
      std::snprintf(entry->key, sizeof entry->key, "%s", key.c_str());
      std::snprintf(entry->value, sizeof entry->value, "%s", value.c_str());
    });
    return {};
  }
  Result<std::vector<std::string>> Wait(const std::vector<std::string>& keys, Duration timeout) override {
    const Time deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      std::vector<std::string> values;
      Locked([&] {
        for (const auto& key : keys) {
          if (const Entry* entry = Find(key)) values.push_back(entry->value);
        }
      });
      if (values.size() == keys.size()) return values;
      if (std::chrono::steady_clock::now() > deadline) return Fail(Code::kDeadlineExceeded, "missing {}", keys[0]);
      ::usleep(200);
    }
  }
  Result<int64_t> Add(const std::string&, int64_t) override { return Fail(Code::kUnimplemented, "not needed"); }
  Status Delete(const std::string& key) override {
    Locked([&] {
      if (Entry* entry = Find(key)) entry->key[0] = '\0';
    });
    return {};
  }

 private:
  struct Entry {
    char key[120];
    char value[120];
  };
  struct Memory {
    std::atomic<int> locked;
    Entry entries[64];
  };
  template <typename F>
  void Locked(F body) {
    while (memory_->locked.exchange(1, std::memory_order_acquire) != 0) ::sched_yield();
    body();
    memory_->locked.store(0, std::memory_order_release);
  }
  Entry* Find(const std::string& key) {
    for (Entry& entry : memory_->entries) {
      if (key == entry.key) return &entry;
    }
    return nullptr;
  }
  SharedPage<Memory> memory_;
};

// What the ranks of a test and the test itself tell each other.
struct Scratch {
  std::atomic<int> ready;
  std::atomic<int> go;
  std::atomic<int> word[kMostRanks];
  std::atomic<int64_t> told_ns[kMostRanks];  // first on_change that found the generation revoked
};

struct Context {
  int local = 0;
  int size = 0;
  int bell = -1;
  Window* window = nullptr;
  shm::Arena* arena = nullptr;
  Scratch* scratch = nullptr;
  std::atomic<int> changes{0};

  // Sleeps on the doorbell as a loop does until `done`; false after 20 s.
  bool Await(const std::function<bool()>& done) {
    const Time deadline = In(20);
    while (!done()) {
      window->BeginSleep();
      if (!done()) {
        pollfd waited{bell, POLLIN, 0};
        ::poll(&waited, 1, 20);
        uint64_t count = 0;
        [[maybe_unused]] const auto got = ::read(bell, &count, sizeof count);
      }
      window->EndSleep();
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }
};

// For bodies that run in ranks: prints and fails the rank.
#define RANK_CHECK(condition)                                                                            \
  do {                                                                                                   \
    if (!(condition)) {                                                                                  \
      std::fprintf(stderr, "%s:%d: local rank %d: %s\n", __FILE__, __LINE__, context.local, #condition); \
      return 1;                                                                                          \
    }                                                                                                    \
  } while (false)

using Body = std::function<int(Context&)>;

struct ProcessOptions {
  bool without_waitv = false;
  bool crash_signals = true;
  std::string auth_key = "secret";
  double timeout_s = 20;
  uint64_t generation = 1;
};

// `size` forked ranks that run `body` with a window; 0 from body is success.
class ProcessRanks {
 public:
  ProcessRanks(int size, Body body, ProcessOptions options = {}) : size_(size) {
    std::fflush(nullptr);
    for (int i = 0; i < size; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::alarm(60);  // never outlives a broken test
        rlimit cores{};
        ::getrlimit(RLIMIT_CORE, &cores);
        cores.rlim_cur = 0;
        ::setrlimit(RLIMIT_CORE, &cores);
        ::_exit(Child(i, body, options));
      }
      if (pid < 0) std::abort();  // kill(-1) is everybody
      pids_.push_back(pid);
    }
  }
  ~ProcessRanks() {
    for (size_t i = 0; i < pids_.size(); ++i) {
      if (pids_[i] <= 0) continue;
      ::kill(pids_[i], SIGKILL);
      ::waitpid(pids_[i], nullptr, 0);
    }
  }

  Scratch& scratch() { return *scratch_; }
  pid_t pid(int i) const { return pids_[static_cast<size_t>(i)]; }
  void AwaitReady(int count) {
    const Time deadline = In(20);
    while (scratch_->ready.load() < count && std::chrono::steady_clock::now() < deadline) ::usleep(100);
    ASSERT_EQ(scratch_->ready.load(), count);
  }
  // The status as waitpid gives it.
  int Join(int i) {
    int status = 0;
    ::waitpid(pids_[static_cast<size_t>(i)], &status, 0);
    pids_[static_cast<size_t>(i)] = -1;
    return status;
  }
  void ExpectSuccess(int except = -1) {
    for (int i = 0; i < size_; ++i) {
      if (i == except || pids_[static_cast<size_t>(i)] <= 0) continue;
      EXPECT_EQ(Join(i), 0) << "local rank " << i;
    }
  }

 private:
  int Child(int local, const Body& body, const ProcessOptions& options) {
    Context context;
    shm::Arena arena({.capacity = 64 << 20});
    context.local = local;
    context.size = size_;
    context.bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    context.arena = &arena;
    context.scratch = &*scratch_;
    std::atomic<Window*> published{nullptr};
    std::vector<Rank> ranks(static_cast<size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 10);  // unlike the local index
    const auto note_revocation = [&] {
      Window* const mine = published.load();
      int64_t none = 0;
      if (mine != nullptr && mine->revoked()) scratch_->told_ns[local].compare_exchange_strong(none, NowNs());
    };
    auto window = shm::CreateWindow({.store = &store_,
                                     .prefix = "test",
                                     .generation = options.generation,
                                     .local = local,
                                     .ranks = ranks,
                                     .doorbell = context.bell,
                                     .arena = &arena,
                                     .auth_key = options.auth_key,
                                     .deadline = In(options.timeout_s),
                                     .on_change =
                                         [&] {
                                           context.changes.fetch_add(1);
                                           note_revocation();
                                         },
                                     .crash_signals = options.crash_signals,
                                     .without_waitv = options.without_waitv});
    if (!window) {
      std::fprintf(stderr, "local rank %d: %s\n", local, window.error().message.c_str());
      return 99;
    }
    context.window = window->get();
    published.store(context.window);
    if (context.changes.load() > 0) note_revocation();  // a change that came before there was a window to ask
    const int rc = body(context);
    published.store(nullptr);
    window->reset();
    return rc;
  }

  const int size_;
  SharedStore store_;
  SharedPage<Scratch> scratch_;
  std::vector<pid_t> pids_;
};

inline size_t CountDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Mappings of our shared files in this process.
inline size_t CountMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("hvd-") != std::string::npos;
  return count;
}

}  // namespace hvd::transport::testing
