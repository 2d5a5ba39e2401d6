// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/known_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kFull[] = "OSError: [Errno 28] No space left on device";

TEST(LastError, IsWhatFollowsTheCallsOfTheLastTraceback) {
  EXPECT_THAT(LastError({kFull, "Traceback (most recent call last):", "  File \"train.py\", line 12, in <module>",
                         "    step()", "ValueError: bad sample", "in file 3"}),
              ElementsAre("ValueError: bad sample", "in file 3"));
  EXPECT_THAT(LastError({"Traceback (most recent call last):", "  File \"a.py\", line 1", kFull,
                         "During handling of the above exception, another exception occurred:",
                         "Traceback (most recent call last):", "  File \"a.py\", line 2", "KeyError: 7"}),
              ElementsAre("KeyError: 7"));
  EXPECT_THAT(
      LastError({kFull, "terminate called after throwing an instance of 'std::runtime_error'", "  what():  no"}),
      ElementsAre("  what():  no"));
}

TEST(LastError, IsTheLastLineWithoutATraceback) {
  EXPECT_THAT(LastError({kFull, "wrong usage", "", ""}), ElementsAre("wrong usage"));
  EXPECT_THAT(LastError({""}), IsEmpty());
  EXPECT_THAT(LastError({}), IsEmpty());
}

TEST(ExplainError, ExplainsNoWarningOfAnErrorThatWasHandled) {
  EXPECT_THAT(ExplainError({kFull}).value_or(""), HasSubstr("df -h"));
  EXPECT_FALSE(ExplainError({std::string("cache is off: ") + kFull, "Traceback (most recent call last):",
                             "  File \"train.py\", line 12, in <module>", "ValueError: bad sample"}));
  EXPECT_FALSE(ExplainError({kFull, "wrong usage"}));
}

}  // namespace
}  // namespace hvd::launch
