// SPDX-License-Identifier: Apache-2.0
// What hvd.hpp promises beyond its examples. Runs as any number of ranks; two see most.
#include <array>
#include <chrono>
#include <cstdio>
#include <future>
#include <hvd/hvd.hpp>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"

using namespace std::chrono_literals;

namespace {

// What must not compile.
static_assert(!hvd::element<char> && !hvd::element<std::uint32_t> && !hvd::element<const float> &&
              !hvd::element<void*>);
static_assert(hvd::element<long long> && hvd::element<long> && hvd::element<bool> && hvd::element<hvd::bfloat16>);
static_assert(!hvd::readable<std::list<int>&> && !hvd::readable<std::vector<bool>&>);
static_assert(hvd::readable<std::vector<float>> && !hvd::lasting<std::vector<float>>);
static_assert(hvd::writable<std::span<float>> && !hvd::writable<const std::vector<float>&>);
static_assert(hvd::writable<hvd::buffer<int>&> && !hvd::writable<const hvd::buffer<int>&>);
static_assert(!std::is_copy_constructible_v<hvd::buffer<int>> && !std::is_copy_constructible_v<hvd::future<void>>);
static_assert(std::is_nothrow_move_assignable_v<hvd::future<void>> && !std::is_move_constructible_v<hvd::session>);
static_assert(std::is_base_of_v<std::runtime_error, hvd::timeout_error>);

void BeforeInit() {
  CHECK(!hvd::is_initialized());
  hvd::buffer<float> early(3);
  CHECK(early.size() == 3 && early[2] == 0.0f);
  CHECK(Has(Thrown<hvd::precondition_error>([] { (void)hvd::rank(); }), "init"));
  CHECK(Has(Thrown<hvd::precondition_error>([&] { hvd::allreduce(early); }), "init"));
  hvd::shutdown();
  CHECK(Has(Thrown<hvd::argument_error>([] { hvd::init({.rank = 3, .size = 2}); }), "HOROVOD_RANK"));
  CHECK(Has(Thrown<hvd::argument_error>([] { hvd::init({.process_sets = {std::vector<int>()}}); }), "process set 1"));
}

void Sessions() {
  {
    hvd::session job({.timeout = 20s});
    { hvd::session inner; }
    CHECK(hvd::is_initialized());
    CHECK(hvd::local_size() == hvd::size() && hvd::cross_size() == 1 && hvd::is_homogeneous());
    CHECK(hvd::allreduce(1, {.op = hvd::op::sum}) == hvd::size());
    // A call that was refused here, and that the others know nothing of, does not count.
    if (hvd::rank() == 0) (void)Thrown<hvd::argument_error>([] { (void)hvd::broadcast(1, -1); });
    CHECK(hvd::broadcast(7, 0) == 7);
  }
  CHECK(!hvd::is_initialized());
}

template <class T>
void Type() {
  std::vector<T> values(5, T(2));
  hvd::allreduce(values, {.op = hvd::op::sum});
  for (const T value : values) CHECK(static_cast<float>(value) == 2.0f * hvd::size());
  CHECK(static_cast<float>(hvd::broadcast(T(hvd::rank() + 1), hvd::size() - 1)) == hvd::size());
  CHECK(hvd::allgather(values).size() == 5u * hvd::size());
}

void Types() {
  Type<std::uint8_t>();
  Type<std::int8_t>();
  Type<std::uint16_t>();
  Type<std::int16_t>();
  Type<std::int32_t>();
  Type<std::int64_t>();
  Type<long long>();
  Type<float>();
  Type<double>();
  Type<hvd::half>();
  Type<hvd::bfloat16>();
  CHECK(hvd::allreduce(hvd::rank() == 0, {.op = hvd::op::max}));
  CHECK(hvd::allreduce(hvd::rank() == 0, {.op = hvd::op::min}) == (hvd::size() == 1));
  CHECK(hvd::allreduce(2.0, {.op = hvd::op::product}) == static_cast<double>(1 << hvd::size()));
  hvd::allreduce(std::span<float>());
  CHECK(hvd::allgather(std::span<const int>()).empty());
}

void HalfPrecision() {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    hvd::half h;
    hvd::bfloat16 b;
    h.bits = b.bits = static_cast<std::uint16_t>(bits);
    const auto float_h = static_cast<float>(h);
    const auto float_b = static_cast<float>(b);
    CHECK(float_h != float_h ? (hvd::half(float_h).bits & 0x7e00) == 0x7e00 : hvd::half(float_h).bits == bits);
    CHECK(float_b != float_b ? (hvd::bfloat16(float_b).bits & 0x7fc0) == 0x7fc0 : hvd::bfloat16(float_b).bits == bits);
  }
  // Ties go to even; 65520 and 2^-25 are the edges.
  CHECK(hvd::half(2049.0f).bits == hvd::half(2048.0f).bits && hvd::half(2051.0f).bits == hvd::half(2052.0f).bits);
  CHECK(hvd::half(65519.9f).bits == 0x7bff && hvd::half(65520.0f).bits == 0x7c00 && hvd::half(-1e9f).bits == 0xfc00);
  CHECK(hvd::half(0x1p-25f).bits == 0 && hvd::half(0x1.000002p-25f).bits == 1 && hvd::half(0x1.8p-24f).bits == 2);
  CHECK(hvd::half(0x1.ff8p-15f).bits == 0x3ff && hvd::half(0x1.ffcp-15f).bits == 0x400);
  CHECK(hvd::bfloat16(0x1.01p0f).bits == 0x3f80 && hvd::bfloat16(0x1.03p0f).bits == 0x3f82);
}

void Buffers() {
  hvd::buffer<double> a(4);
  a[3] = 2.0;
  hvd::buffer<double> b = std::move(a);
  CHECK(a.empty() && a.data() == nullptr && b.size() == 4 && b[3] == 2.0);  // NOLINT: moved-from is empty
  a = std::move(b);
  CHECK(a[3] == 2.0 && b.empty());
  CHECK(hvd::buffer<int>(0).empty());
  CHECK(Has(Thrown<hvd::memory_error>([] { hvd::buffer<double> b(~std::size_t{0} / 16); }), "HOROVOD_ARENA_BYTES"));
  CHECK(Has(Thrown<hvd::memory_error>([] { hvd::buffer<double> b(~std::size_t{0}); }), "addresses"));
  auto early = std::make_unique<hvd::buffer<float>>(100000);
  const auto pending = hvd::allreduce_async(*early);
  early.reset();  // the operation keeps the memory
  pending.wait();
}

void Futures() {
  hvd::future<void> none;
  CHECK(!none.valid());
  try {
    none.wait();
    CHECK(false);
  } catch (const std::future_error& error) {
    CHECK(error.code() == std::future_errc::no_state);
  }
  std::vector<std::vector<float>> layers;
  for (int i = 0; i < 8; ++i) layers.emplace_back(1000 * i + 1, 1.0f);
  {
    // In the opposite order on odd ranks; the destructors wait.
    std::vector<hvd::future<void>> pending;
    for (int i = 0; i < 8; ++i) {
      const int layer = hvd::rank() % 2 == 0 ? i : 7 - i;
      const std::string name = "layer." + std::to_string(layer);
      pending.push_back(hvd::allreduce_async(layers[layer], {.op = hvd::op::sum, .name = name}));
    }
  }
  for (const auto& layer : layers) CHECK(layer.back() == hvd::size());

  auto first = hvd::allgather_async(layers[1], {.name = "first"});
  auto second = std::move(first);
  CHECK(!first.valid() && second.valid());  // NOLINT: moved-from is empty
  CHECK(second.wait_until(std::chrono::steady_clock::now() + 60s) == std::future_status::ready);
  CHECK(second.wait_for(0s) == std::future_status::ready);
  CHECK(second.get().size() == layers[1].size() * hvd::size() && !second.valid());
  second = hvd::allgather_async(layers[1], {.name = "dropped"});
  second = hvd::allgather_async(layers[2], {.name = "kept"});
  CHECK(second.get().size() == layers[2].size() * hvd::size());

  // A name may be in flight once; the loser does no harm.
  std::vector<float> other(1, 1.0f);
  auto held = hvd::allreduce_async(layers[3], {.name = "once"});
  if (hvd::size() > 1 && hvd::rank() == 0 && held.wait_for(0s) == std::future_status::timeout) {
    CHECK(Has(Thrown<hvd::argument_error>([&] { hvd::allreduce(other, {.name = "once"}); }), "same name"));
  }
  held.get();
}

void ShutdownInFlight() {
  std::vector<float> values(10, 1.0f);
  std::vector<float> more(10, 1.0f);
  hvd::future<void> taken;
  hvd::future<void> dropped;
  hvd::future<hvd::buffer<float>> gathered;
  {
    hvd::session job;
    taken = hvd::allreduce_async(values, {.name = "mine." + std::to_string(hvd::rank())});
    dropped = hvd::allreduce_async(more, {.name = "also." + std::to_string(hvd::rank())});
    gathered = hvd::allgather_async(std::span<const float>(), {.name = "third." + std::to_string(hvd::rank())});
    hvd::barrier();  // whoever leaves first ends the job for those who would still submit
  }
  CHECK(Has(Thrown<hvd::shutdown_error>([&] { taken.get(); }), "shut down"));
  CHECK(!taken.valid());
  hvd::session job;  // a new engine does not know the old handles
  CHECK(Has(Thrown<hvd::shutdown_error>([&] { gathered.get(); }), "shut down"));
  hvd::barrier();  // rank 0 serves the joining of all ranks; who leaves at once could meet it still at that
}

void Threads() {
  const auto meet = [] {
    for (int i = 0; i < 20; ++i) hvd::barrier();
  };
  std::thread other(meet);
  meet();
  other.join();
}

void Disagreement() {
  std::vector<float> values(1 + hvd::rank(), 1.0f);
  CHECK(Has(Thrown<hvd::precondition_error>([&] { hvd::allreduce(values, {.name = "shape"}); }), "shape"));
  hvd::barrier();
  // Only rank 0 comes in time.
  if (hvd::rank() == 0) {
    const auto text = Thrown<hvd::timeout_error>([] { (void)hvd::allreduce(1, {.name = "late", .timeout = 50ms}); });
    CHECK(Has(text, "late"));
  }
  hvd::barrier({.timeout = 60s});
  if (hvd::rank() != 0) CHECK(hvd::allreduce(1, {.op = hvd::op::average, .name = "late"}) == 1);
  hvd::barrier();  // rank 0 stays for the others' sake
}

void ProcessSets() {
  hvd::session job({.process_sets = {{1, 0}, {1}}});
  CHECK(hvd::process_sets().size() == 3);
  const auto pair = hvd::process_set::of({0, 1});
  const auto one = hvd::process_set::of({1});
  CHECK(pair.id() == 1 && one.id() == 2 && hvd::process_set().id() == 0);
  CHECK((pair.ranks() == std::vector<int>{0, 1}) && pair.size() == 2 && one.size() == 1);
  CHECK(one.included() == (hvd::rank() == 1));
  CHECK(Has(Thrown<hvd::argument_error>([] { (void)hvd::process_set::of({0}); }), "no process set of ranks 0"));
  CHECK(Has(Thrown<hvd::argument_error>([] { (void)hvd::process_set::with_id(9).size(); }), "9"));
  if (one.included()) {
    CHECK(one.rank() == 0);
    CHECK(hvd::allreduce(5, {.op = hvd::op::sum, .set = one}) == 5);
    CHECK(hvd::allgather(1, {.set = one}).size() == 1);
  } else {
    CHECK(Has(Thrown<hvd::argument_error>([&] { (void)one.rank(); }), "not a member"));
    CHECK(Has(Thrown<hvd::argument_error>([&] { hvd::barrier({.set = one}); }), "not a member"));
  }
  // Unnamed operations on the small set do not put its member out of step on the large ones.
  if (pair.included()) CHECK(hvd::allreduce(1, {.op = hvd::op::sum, .set = pair}) == 2);
  CHECK(hvd::allreduce(1, {.op = hvd::op::sum}) == hvd::size());
}

}  // namespace

int main() {
  BeforeInit();
  HalfPrecision();
  Sessions();
  int ranks = 0;
  {
    hvd::session job;
    ranks = hvd::size();
    Types();
    Buffers();
    Futures();
    Threads();
    if (hvd::size() > 1) Disagreement();
  }
  if (ranks > 1) ShutdownInFlight();
  if (ranks > 2) ProcessSets();
  std::puts("ok");
}
