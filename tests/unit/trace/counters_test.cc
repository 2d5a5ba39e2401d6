// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/counters.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hvd/trace/counters_text.h"
#include "tests/unit/trace/strict_json.h"

namespace hvd::trace {
namespace {

bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Counters, EveryOperationHasItsKind) {
  const auto name = [](OpKind op, ReduceOp reduce = ReduceOp::kSum) { return kCountedKinds[CountedKind(op, reduce)]; };
  EXPECT_EQ(name(OpKind::kAllreduce), "allreduce");
  EXPECT_EQ(name(OpKind::kAllreduce, ReduceOp::kAdasum), "adasum");
  EXPECT_EQ(name(OpKind::kAllgather), "allgather");
  EXPECT_EQ(name(OpKind::kBroadcast), "broadcast");
  EXPECT_EQ(name(OpKind::kBarrier), "barrier");
  EXPECT_EQ(name(OpKind::kAlltoall), "alltoall");
  EXPECT_EQ(name(OpKind::kReducescatter), "reducescatter");
  EXPECT_EQ(name(OpKind::kJoin), "join");
  EXPECT_EQ(name(OpKind::kAddProcessSet), "process_set");
  EXPECT_EQ(name(OpKind::kRemoveProcessSet), "process_set");
}

// Steps of 2^32 + 1: a reader that saw half of an addition would find the halves unequal.
TEST(Counters, ReadersNeverSeeHalfOfAnAddition) {
  Counters counters(2);
  std::atomic<bool> stop{false};
  constexpr uint64_t kStep = (uint64_t{1} << 32) + 1;
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) counters.peers[1].wait.Add(kStep);
  });
  uint64_t last = 0;
  for (int i = 0; i < 200000 || last == 0; ++i) {
    const uint64_t now = counters.peers[1].wait.load();
    ASSERT_EQ(now >> 32, now & 0xffffffff);
    ASSERT_GE(now, last);
    last = now;
  }
  stop = true;
  writer.join();
}

TEST(Counters, TimesBecomeSeconds) {
  Counters counters(1);
  const TickScale ticks;
  const auto begin = ticks.Read();
  TickScale::Pair end = begin;
  while (end.nanos - begin.nanos < 20000000) end = ticks.Read();
  counters.kinds[0].wait.Add(end.ticks - begin.ticks);
  const CounterSnapshot snapshot = Read(counters, ticks);
  EXPECT_NEAR(snapshot.kinds[0].wait_s, static_cast<double>(end.nanos - begin.nanos) * 1e-9, 0.01);
  EXPECT_GE(snapshot.uptime_s, 0.02);
  EXPECT_EQ(snapshot.kinds[0].run_s, 0);
}

CounterSnapshot Example() {
  Counters counters(2);
  counters.kinds[CountedKind(OpKind::kAllreduce, ReduceOp::kSum)].completed.Add(10);
  counters.kinds[CountedKind(OpKind::kAllreduce, ReduceOp::kSum)].bytes.Add(40960);
  counters.peers[1].last.Add(3);
  counters.cache_hits.Add(9);
  counters.requests.Add(1);
  counters.fusion_bytes.Add(~uint64_t{0} >> 1);
  counters.in_force.chunk_percent.Set(200);
  counters.in_force.chunk_percent.Set(50);
  counters.in_force.chunk_bytes.Set(32768);
  counters.in_force.eager_bytes.Set(4096);
  counters.in_force.spin_us.Set(10);
  CounterSnapshot snapshot = Read(counters, TickScale());
  snapshot.rank = 0;
  snapshot.size = 2;
  snapshot.host = "no\"de\\7\n";
  snapshot.version = "1.2";
  snapshot.peers[1].transports.push_back({"shm", 7, 8});
  snapshot.peers[1].transports.push_back({"ring", 9, 10});
  return snapshot;
}

TEST(CountersText, JsonHasEveryNumberOnce) {
  const auto json = JsonReader::Parse(ToJson(Example()));
  ASSERT_TRUE(json);
  const Json& root = *json;
  EXPECT_EQ(root["size"].number, 2);
  EXPECT_EQ(root["operations"].fields.size(), kCountedKinds.size());
  EXPECT_EQ(root["operations"]["allreduce"]["completed"].number, 10);
  EXPECT_EQ(root["operations"]["allreduce"]["bytes"].number, 40960);
  EXPECT_EQ(root["operations"]["join"]["completed"].number, 0);
  EXPECT_EQ(root["peers"]["1"]["last"].number, 3);
  EXPECT_EQ(root["peers"]["1"]["sent_bytes"]["shm"].number, 7);
  EXPECT_EQ(root["peers"]["1"]["received_bytes"]["ring"].number, 10);
  EXPECT_TRUE(root["peers"]["0"]["sent_bytes"].fields.empty());
  EXPECT_EQ(root["cache"]["hits"].number, 9);
  EXPECT_EQ(root["cache"]["misses"].number, 1);
  EXPECT_EQ(root["tuning"]["chunk_percent"].number, 50);
  EXPECT_EQ(root["tuning"]["chunk_bytes"].number, 32768);
  EXPECT_EQ(root["tuning"]["eager_limit_bytes"].number, 4096);
  EXPECT_EQ(root["tuning"]["spin_us"].number, 10);
}

TEST(CountersText, PrometheusEscapesLabelsAndKeepsWholeNumbers) {
  const std::string text = ToPrometheus(Example());
  EXPECT_TRUE(Has(text, R"(horovod_info{rank="0",size="2",host="no\"de\\7\n",version="1.2"} 1)")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_operations_total{rank="0",kind="allreduce"} 10)")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_operations_total{rank="0",kind="process_set"} 0)")) << text;
  EXPECT_TRUE(Has(text, "# TYPE horovod_operations_total counter")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_peer_sent_bytes_total{rank="0",peer="1",transport="shm"} 7)")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_fusion_bytes_total{rank="0"} 9223372036854775807)")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_chunk_percent{rank="0"} 50)")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_chunk_bytes{rank="0"} 32768)")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_eager_limit_bytes{rank="0"} 4096)")) << text;
  EXPECT_TRUE(Has(text, R"(horovod_spin_seconds{rank="0"} 0.000010000)")) << text;
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace hvd::trace
