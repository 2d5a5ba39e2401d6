// SPDX-License-Identifier: Apache-2.0
// What exchange.hpp, grouped.hpp, join and process sets that come and go promise beyond their examples. Runs as any
// number of ranks.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <hvd/hvd.hpp>
#include <numeric>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check.h"

using namespace std::chrono_literals;

namespace {

using Lists = std::vector<std::vector<float>>;

// What must not compile, and what must.
static_assert(hvd::writable_group<Lists&> && hvd::readable_group<const Lists&> && hvd::readable_group<Lists>);
static_assert(!hvd::writable_group<const Lists&> && !hvd::writable_group<Lists> && !hvd::lasting_group<Lists>);
static_assert(hvd::lasting_group<std::span<const std::vector<float>>> &&
              hvd::writable_group<std::span<Lists::value_type>>);
static_assert(hvd::writable_group<std::array<std::span<float>, 2>> && !hvd::writable_group<std::vector<float>&>);

void Adasum() {
  std::vector<double> equal(3, 4.0);
  hvd::allreduce(equal, {.op = hvd::op::adasum});
  CHECK(equal == std::vector<double>(3, 4.0));
  std::vector<hvd::half> apart(hvd::size(), hvd::half(0.0f));
  apart[hvd::rank()] = hvd::half(2.0f);
  hvd::allreduce(apart, {.op = hvd::op::adasum});
  for (const hvd::half one : apart) CHECK(static_cast<float>(one) == 2.0f);
  CHECK(Has(Thrown<hvd::argument_error>([] { (void)hvd::allreduce(1, {.op = hvd::op::adasum}); }), "floating-point"));
}

template <class T>
void Exchange() {
  // Rank r sends i + 1 elements to rank i, and keeps one.
  std::vector<int> splits(hvd::size());
  std::iota(splits.begin(), splits.end(), 1);
  const std::vector<T> mine(std::accumulate(splits.begin(), splits.end(), 1), T(hvd::rank() + 1));
  const hvd::received<T> got = hvd::alltoall(mine, splits);
  CHECK(got.splits == std::vector<int>(hvd::size(), hvd::rank() + 1));
  CHECK(got.values.size() == static_cast<std::size_t>(hvd::size() * (hvd::rank() + 1)));
  for (int from = 0; from < hvd::size(); ++from) {
    CHECK(static_cast<float>(got.values[from * (hvd::rank() + 1)]) == from + 1.0f);
  }
  auto later = hvd::alltoall_async(mine, std::views::iota(0, hvd::size()));
  CHECK(later.wait_for(60s) == std::future_status::ready);
  CHECK(later.get().splits == std::vector<int>(hvd::size(), hvd::rank()));
  (void)hvd::alltoall_async(mine, splits, {.name = "dropped"});

  // Seven elements: the first ranks have one more where it does not come out even.
  const std::vector<T> seven(7, T(2));
  const hvd::buffer<T> part = hvd::reducescatter(seven, {.op = hvd::op::sum});
  CHECK(part.size() == static_cast<std::size_t>(7 / hvd::size() + (hvd::rank() < 7 % hvd::size() ? 1 : 0)));
  for (const T one : part) CHECK(static_cast<float>(one) == 2.0f * hvd::size());
  CHECK(hvd::reducescatter_async(seven).get().size() == part.size());
}

void ExchangeErrors() {
  const std::vector<float> values(2 * hvd::size(), 1.0f);
  const std::vector<int> much(hvd::size(), 3);
  CHECK(
      Has(Thrown<hvd::argument_error>([&] { (void)hvd::alltoall(values, much); }), "larger than the first dimension"));
  CHECK(Has(Thrown<hvd::argument_error>([&] { (void)hvd::alltoall(values, std::vector<int>()); }), "splits"));
  CHECK(Has(Thrown<hvd::argument_error>([&] { (void)hvd::alltoall(values, std::vector{-1}); }), "not negative"));
  CHECK(Has(Thrown<hvd::error>([&] { (void)hvd::reducescatter(values, {.op = hvd::op::max}); }), "Average or Sum"));
  CHECK(hvd::alltoall(values).size() == values.size());  // none of these counted
  CHECK(hvd::alltoall(std::span<const int>()).empty());
  CHECK(hvd::alltoall(std::span<const int>(), std::vector<int>(hvd::size())).values.empty());
}

void Groups() {
  Lists layers{{1.0f}, {}, std::vector<float>(1000, 2.0f)};
  hvd::grouped_allreduce(layers, {.op = hvd::op::sum, .prescale = 0.5});
  CHECK(layers[0][0] == 0.5f * hvd::size() && layers[1].empty() && layers[2].back() == 1.0f * hvd::size());
  Lists small{{1.0f + 0x1p-9f}, std::vector<float>(1000, 1.0f + 0x1p-11f)};
  hvd::grouped_allreduce(small, {.wire = hvd::wire::bfloat16});
  CHECK(small[0][0] == 1.0f && small[1].back() == 1.0f);
  hvd::grouped_allreduce(small, {.wire = hvd::wire::half});
  CHECK(Has(Thrown<hvd::argument_error>([&] { (void)hvd::reducescatter(small[1], {.wire = hvd::wire::half}); }),
            "HVD_WIRE_FLOAT16"));
  {
    // In the opposite order on odd ranks; the destructors wait.
    Lists others{{1.0f, 2.0f}, {3.0f}};
    hvd::future<void> first;
    hvd::future<void> second;
    const auto start = [&](bool other) {
      auto& pending = other ? second : first;
      pending = hvd::grouped_allreduce_async(other ? others : layers, {.name = other ? "other" : "one"});
    };
    start(hvd::rank() % 2 == 1);
    start(hvd::rank() % 2 == 0);
    auto moved = std::move(first);
    CHECK(moved.valid() && !first.valid());  // NOLINT: moved-from is empty
  }
  // Views that make the members.
  struct Layer {
    std::vector<double> weights;
  };
  std::vector<Layer> model(3, Layer{std::vector<double>(2, hvd::rank())});
  hvd::grouped_allreduce(model | std::views::transform([](Layer& layer) { return std::span(layer.weights); }),
                         {.op = hvd::op::max});
  CHECK(model[2].weights[1] == hvd::size() - 1);

  const std::vector<hvd::buffer<float>> all = hvd::grouped_allgather(layers);
  CHECK(all.size() == 3 && all[0].size() == static_cast<std::size_t>(hvd::size()) && all[1].empty());
  const Lists wide{std::vector<float>(hvd::size(), 1.0f), std::vector<float>(2 * hvd::size(), 1.0f)};
  auto parts = hvd::grouped_reducescatter_async(wide, {.op = hvd::op::sum});
  CHECK(parts.wait_for(60s) == std::future_status::ready);
  CHECK(parts.get().at(1).size() == 2 && !parts.valid());
  { auto dropped = hvd::grouped_allgather_async(layers, {.name = "dropped"}); }

  // An empty group is nothing to do, and nobody waits for it.
  Lists none;
  hvd::grouped_allreduce(none);
  auto over = hvd::grouped_allreduce_async(none);
  CHECK(over.valid() && over.wait_for(0s) == std::future_status::ready);
  over.get();
  CHECK(!over.valid() && hvd::grouped_allgather(none).empty());
}

void GroupErrors() {
  // One member that is wrong fails all, and its number is not used up.
  std::vector<std::vector<int>> numbers{{1}, {2}};
  CHECK(Has(Thrown<hvd::argument_error>([&] { hvd::grouped_allreduce(numbers, {.op = hvd::op::adasum}); }), "Adasum"));
  hvd::grouped_allreduce(numbers, {.op = hvd::op::sum});
  CHECK(numbers[1][0] == 2 * hvd::size());
  if (hvd::size() == 1) return;
  std::vector<std::vector<int>> differ{{1}, std::vector<int>(1 + hvd::rank(), 1)};
  CHECK(Has(Thrown<hvd::precondition_error>([&] { hvd::grouped_allreduce(differ, {.name = "differ"}); }), "shape"));
  hvd::barrier();
}

void Join() {
  for (int last = 0; last < hvd::size(); ++last) {
    if (hvd::rank() == last) {
      const int alone = hvd::allreduce(5, {.op = hvd::op::max, .name = "alone"});
      CHECK(alone == 5);
    }
    CHECK(hvd::join() == last || hvd::size() == 1);
  }
}

void DynamicSets() {
  CHECK(Has(Thrown<hvd::argument_error>([] { (void)hvd::add_process_set({hvd::size()}); }), "ranks are 0 to"));
  CHECK(Has(Thrown<hvd::argument_error>([] { (void)hvd::add_process_set({}); }), "empty"));
  CHECK(Has(Thrown<hvd::argument_error>([] { hvd::remove_process_set({}); }), "global"));
  if (hvd::size() == 1) return;
  for (int round = 0; round < 3; ++round) {
    const auto first = hvd::add_process_set(hvd::size() == 2 ? std::vector{0} : std::vector{1, 0});
    const auto second = hvd::add_process_set({1});
    CHECK(first.id() == 1 + round % 2 && second.id() == 2 - round % 2);  // the id that was free first comes first
    CHECK(hvd::process_set::of({1}) == second && hvd::process_sets().size() == 3);
    // Unnamed operations of a new set have the same numbers on all members, whatever its id was used for.
    if (first.included()) CHECK(hvd::allreduce(2, {.op = hvd::op::sum, .set = first}) == 2 * first.size());
    for (int i = 0; i < 3 && second.included(); ++i) {
      CHECK(hvd::reducescatter(std::array{1.0f}, {.set = second}).size() == 1);
      CHECK(hvd::allreduce(1, {.set = second}) == 1);
    }
    hvd::remove_process_set(second);
    hvd::remove_process_set(first);
    CHECK(Has(Thrown<hvd::argument_error>([&] { hvd::barrier({.set = first}); }), "does not exist"));
  }
}

}  // namespace

int main() {
  {
    hvd::session job({.dynamic_process_sets = true});
    Adasum();
    Exchange<float>();
    Exchange<std::int64_t>();
    Exchange<hvd::bfloat16>();
    ExchangeErrors();
    Groups();
    GroupErrors();
    Join();
    DynamicSets();
    hvd::barrier();
  }
  {
    hvd::session job;
    if (hvd::size() > 1) {
      const auto text = Thrown<hvd::precondition_error>([] { (void)hvd::add_process_set({1}); });
      CHECK(Has(text, "HOROVOD_DYNAMIC_PROCESS_SETS"));
    }
    hvd::barrier();
  }
  std::puts("ok");
}
