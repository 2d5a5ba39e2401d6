// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine as a process set sees it, for tests of what needs no engine: keeps what it is told.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hvd/engine/process_set/process_set.h"
#include "hvd/wire/control.h"

namespace hvd::engine {

class FakeProcessSetDelegate final : public ProcessSetDelegate {
 public:
  std::vector<std::pair<Operation*, Error>> completed;
  std::vector<std::pair<Rank, wire::Bytes>> sent;
  std::vector<Error> gave_up;

  void Complete(Operation* op, Error error) override { completed.emplace_back(op, std::move(error)); }
  void SendControl(Rank rank, std::span<const std::byte> message) override {
    sent.emplace_back(rank, wire::Bytes(message.begin(), message.end()));
  }
  void AskForMemory(Operation* /*op*/, size_t /*bytes*/) override {}
  void GiveUp(Error error) override { gave_up.push_back(std::move(error)); }
  Operation* MakeStandIn() override { return stand_ins_.emplace_back(std::make_unique<Operation>()).get(); }
  Error ApplySetChange(Operation* /*op*/) override { return kSuccess; }
  bool IsPostponed(const Operation& /*op*/) override { return false; }
  algorithms::Table OnTuned(int /*set*/, const wire::Tuning& /*tuning*/) override { return algorithms::Table(); }

 private:
  std::vector<std::unique_ptr<Operation>> stand_ins_;
};

}  // namespace hvd::engine
