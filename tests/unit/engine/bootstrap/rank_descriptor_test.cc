// SPDX-License-Identifier: Apache-2.0
// What a rank writes on its card is what the others read.
#include "hvd/engine/bootstrap/rank_descriptor.h"

#include <gtest/gtest.h>

namespace hvd::engine::bootstrap {
namespace {

TEST(RankDescriptor, SurvivesCodingAndRefusesTheRest) {
  RankDescriptor card;
  card.version = HVD_VERSION;
  card.nonce = "abc";
  card.size = 4;
  card.process = topology::ThisProcess();
  card.hostname = "here";
  card.no_shm = "two\nlines";
  card.trust = "none";
  card.settings.algorithms = "any:shm:direct=none";
  const std::string text = Encode(card);
  const auto decoded = DecodeRankDescriptor(text);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->process, card.process);
  EXPECT_EQ(decoded->no_shm, "two lines");
  EXPECT_EQ(decoded->settings.algorithms, card.settings.algorithms);
  EXPECT_EQ(Encode(*decoded), Encode(*DecodeRankDescriptor(Encode(*decoded))));
  EXPECT_FALSE(DecodeRankDescriptor(""));
  EXPECT_FALSE(DecodeRankDescriptor(text + "\n"));
  EXPECT_FALSE(DecodeRankDescriptor(text.substr(0, text.rfind('\n'))));
  EXPECT_EQ(DecodeRankDescriptor("9.9.9\nname\nwhatever")->version, "9.9.9");
}

}  // namespace
}  // namespace hvd::engine::bootstrap
