// SPDX-License-Identifier: Apache-2.0
// What every Store promises, over every Store. To add one: an entry in Implementations() that says how to set it up and
// how a client opens it.

#include "hvd/rendezvous/store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <latch>
#include <set>
#include <thread>

#include "hvd/net/deadline.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A place where stores meet, for the length of one test.
class World {
 public:
  virtual ~World() = default;
  std::unique_ptr<Store> Open() const {
    auto store = OpenStore(options_);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

 protected:
  Options options_;
};

struct MemoryWorld final : World {
  MemoryWorld() {
    static int count = 0;
    options_.address = "memory:conformance" + std::to_string(++count);
  }
};

struct FileWorld final : World {
  FileWorld() {
    char name[] = "/tmp/hvd-store-XXXXXX";
    folder_ = mkdtemp(name);
    options_.address = "file://" + folder_;
  }
  ~FileWorld() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

struct ServedWorld final : World {
  ServedWorld(const char* address, bool with_token) {
    options_.address = address;
    if (with_token) options_.token = *net::Token::Generate();
    auto server = Serve(options_);
    EXPECT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    options_.address = server_->address();
  }
  std::unique_ptr<Server> server_;
};

struct Implementation {
  const char* name;
  std::function<std::unique_ptr<World>()> make;
};

const Implementation kImplementations[] = {
    {"Memory", [] { return std::make_unique<MemoryWorld>(); }},
    {"File", [] { return std::make_unique<FileWorld>(); }},
    {"TcpTls", [] { return std::make_unique<ServedWorld>("127.0.0.1:0", true); }},
    {"TcpTlsV6", [] { return std::make_unique<ServedWorld>("[::1]:0", true); }},
    {"TcpUnix", [] { return std::make_unique<ServedWorld>("127.0.0.1:0", false); }},
};

class StoreConformance : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override { world_ = GetParam().make(); }
  // Runs `body(client, its number)` in `count` threads, each with a Store of its own.
  void Clients(int count, const std::function<void(Store&, int)>& body) {
    std::latch opened(count);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        const auto store = world_->Open();
        opened.arrive_and_wait();
        if (store) body(*store, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::unique_ptr<World> world_;
};

std::vector<std::string> Keys(const std::string& prefix, int count) {
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back(prefix + std::to_string(i));
  return keys;
}

TEST_P(StoreConformance, EverybodyMeets) {
  for (int count = 1; count <= 8; ++count) {
    const std::string prefix = "meet/" + std::to_string(count) + "/";
    Clients(count, [&](Store& store, int i) {
      EXPECT_TRUE(store.Set(prefix + std::to_string(i), "value" + std::to_string(i)));
      const auto values = store.Wait(Keys(prefix, count), seconds(60));
      ASSERT_TRUE(values) << values.error().message;
      EXPECT_EQ(*values, Keys("value", count));
    });
  }
}

TEST_P(StoreConformance, WaitGetsValuesInTheOrderOfItsKeys) {
  const auto store = world_->Open();
  ASSERT_TRUE(store->Set("a", "1"));
  ASSERT_TRUE(store->Set("b", "2"));
  EXPECT_EQ(*store->Wait({"b", "a", "b"}, seconds(60)), (std::vector<std::string>{"2", "1", "2"}));
  EXPECT_TRUE(store->Wait({}, seconds(0))->empty());
}

TEST_P(StoreConformance, WaitEndsWhenTheKeyComes) {
  Clients(2, [&](Store& store, int i) {
    if (i == 0) {
      EXPECT_EQ(store.Wait({"question"}, seconds(60))->front(), "?");
      EXPECT_TRUE(store.Set("answer", "!"));
    } else {
      EXPECT_TRUE(store.Set("question", "?"));
      EXPECT_EQ(store.Wait({"answer"}, seconds(60))->front(), "!");
    }
  });
}

TEST_P(StoreConformance, TimeOutNamesTheMissingKeysAndLeavesTheStoreUsable) {
  const auto store = world_->Open();
  ASSERT_TRUE(store->Set("here", ""));
  for (const Duration timeout : {Duration(0), Duration(milliseconds(20))}) {
    const Time before = net::Now();
    const auto values = store->Wait({"here", "absent1", "absent2"}, timeout);
    ASSERT_FALSE(values);
    EXPECT_GE(net::Now() - before, timeout);
    EXPECT_EQ(values.error().code, Code::kDeadlineExceeded);
    EXPECT_NE(values.error().message.find("absent1, absent2"), std::string::npos) << values.error().message;
    EXPECT_EQ(values.error().message.find("here"), std::string::npos) << values.error().message;
  }
  EXPECT_TRUE(store->Wait({"here"}, seconds(60)));
}

TEST_P(StoreConformance, SetOverwrites) {
  const auto store = world_->Open();
  ASSERT_TRUE(store->Set("key", "old and longer"));
  ASSERT_TRUE(store->Set("key", "new"));
  EXPECT_EQ(store->Wait({"key"}, seconds(60))->front(), "new");
}

TEST_P(StoreConformance, AnyBytesAreFine) {
  const auto store = world_->Open();
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const std::string keys[] = {all,
                              "..",
                              "/etc/passwd",
                              "a/../b",
                              " ",
                              "%2F",
                              std::string(1, '\0'),
                              std::string(256, '/'),
                              std::string(256, 'x')};
  for (const std::string& key : keys) ASSERT_TRUE(store->Set(key, key + all)) << key;
  for (const std::string& key : keys) EXPECT_EQ(store->Wait({key}, seconds(60))->front(), key + all);
}

TEST_P(StoreConformance, LimitsAreKept) {
  const auto store = world_->Open();
  EXPECT_EQ(store->Set("", "x").error().code, Code::kInvalidArgument);
  EXPECT_EQ(store->Set(std::string(kMaxKeyBytes + 1, 'k'), "x").error().code, Code::kInvalidArgument);
  EXPECT_EQ(store->Set("k", std::string(kMaxValueBytes + 1, 'v')).error().code, Code::kInvalidArgument);
  EXPECT_EQ(store->Wait({""}, seconds(0)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(store->Add("", 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(store->Delete("").error().code, Code::kInvalidArgument);
  const std::string largest(kMaxValueBytes, 'v');
  ASSERT_TRUE(store->Set("k", largest));
  EXPECT_TRUE(store->Wait({"k"}, seconds(60))->front() == largest);
}

TEST_P(StoreConformance, CountersGiveEverybodyAnotherNumber) {
  constexpr int kClients = 8;
  constexpr int kRounds = 20;
  std::mutex mutex;
  std::set<int64_t> seen;
  Clients(kClients, [&](Store& store, int) {
    for (int i = 0; i < kRounds; ++i) {
      const auto value = store.Add("counter", 1);
      ASSERT_TRUE(value) << value.error().message;
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(seen.insert(*value).second);
    }
  });
  EXPECT_EQ(seen.size(), size_t{kClients * kRounds});
  const auto store = world_->Open();
  EXPECT_EQ(*seen.rbegin(), kClients * kRounds);
}

TEST_P(StoreConformance, CountersAreReadableAndChecked) {
  const auto store = world_->Open();
  EXPECT_EQ(*store->Add("n", 5), 5);
  EXPECT_EQ(*store->Add("n", -7), -2);
  EXPECT_EQ(store->Wait({"n"}, seconds(60))->front(), "-2");
  ASSERT_TRUE(store->Set("text", "x"));
  EXPECT_EQ(store->Add("text", 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(*store->Add("n", std::numeric_limits<int64_t>::max()), std::numeric_limits<int64_t>::max() - 2);
  EXPECT_EQ(store->Add("n", 3).error().code, Code::kInvalidArgument);
}

TEST_P(StoreConformance, DeletedKeysAreGone) {
  const auto store = world_->Open();
  EXPECT_TRUE(store->Delete("never"));
  ASSERT_TRUE(store->Set("key", "x"));
  ASSERT_TRUE(store->Delete("key"));
  EXPECT_FALSE(store->Wait({"key"}, seconds(0)));
  ASSERT_TRUE(store->Set("key", "y"));
  EXPECT_EQ(store->Wait({"key"}, seconds(60))->front(), "y");
}

TEST_P(StoreConformance, ManyKeysInOneWait) {
  const auto store = world_->Open();
  constexpr int kMany = 5000;
  const auto keys = Keys("many", kMany);
  for (const std::string& key : keys) ASSERT_TRUE(store->Set(key, key));
  EXPECT_EQ(*store->Wait(keys, seconds(60)), keys);
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance, ::testing::ValuesIn(kImplementations),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hvd::rendezvous
