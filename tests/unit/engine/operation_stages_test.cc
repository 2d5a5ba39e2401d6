// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/operation_stages.h"

#include <gmock/gmock.h>

namespace hvd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Stage = OperationStages::Stage;

class OperationStagesTest : public ::testing::Test {
 protected:
  static RunningOperations Together(std::initializer_list<Operation*> ops) {
    RunningOperations running;
    running.ops = ops;
    return running;
  }
  std::vector<Operation*> In(Stage wanted) const {
    std::vector<Operation*> found;
    stages_.ForEach([&](Stage stage, size_t /*index*/, Operation* op) {
      if (stage == wanted) found.push_back(op);
    });
    return found;
  }

  Operation a_, b_, c_;
  OperationStages stages_;
};

TEST_F(OperationStagesTest, VisitsEveryStageAndNoVoidMark) {
  stages_.announced = {nullptr, &a_};
  stages_.waiting = {&b_, nullptr};
  stages_.sent.emplace("c", &c_);
  EXPECT_THAT(In(Stage::kAnnounced), ElementsAre(&a_));
  EXPECT_THAT(In(Stage::kWaiting), ElementsAre(&b_));
  EXPECT_THAT(In(Stage::kSent), ElementsAre(&c_));
  EXPECT_FALSE(stages_.moving());
}

TEST_F(OperationStagesTest, CountsVoidMarksSoThatTheIndexIsAPosition) {
  stages_.announced = {&a_, nullptr, &b_};
  std::vector<size_t> indices;
  stages_.ForEach([&](Stage, size_t index, Operation*) { indices.push_back(index); });
  EXPECT_THAT(indices, ElementsAre(0, 2));
}

TEST_F(OperationStagesTest, OperationsThatRunTogetherShareAnIndex) {
  stages_.running.push_back(Together({&a_, &b_}));
  stages_.running.push_back(Together({&c_}));
  std::vector<std::pair<size_t, Operation*>> seen;
  stages_.ForEach([&](Stage, size_t index, Operation* op) { seen.emplace_back(index, op); });
  EXPECT_THAT(seen, ElementsAre(std::pair(size_t{0}, &a_), std::pair(size_t{0}, &b_), std::pair(size_t{1}, &c_)));
  EXPECT_TRUE(stages_.moving());
}

TEST_F(OperationStagesTest, GivesAllAndKeepsNone) {
  stages_.held = {&a_};
  stages_.queued.push_back(Together({&b_}));
  stages_.allocating.push_back(Together({&c_}));
  EXPECT_TRUE(stages_.moving());
  EXPECT_THAT(stages_.TakeAll(), UnorderedElementsAre(&a_, &b_, &c_));
  EXPECT_THAT(stages_.TakeAll(), IsEmpty());
  EXPECT_FALSE(stages_.moving());
}

}  // namespace
}  // namespace hvd::engine
