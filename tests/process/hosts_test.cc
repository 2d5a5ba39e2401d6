// SPDX-License-Identifier: Apache-2.0
// Ranks that say that they are on different hosts: they talk over TCP, and sums follow the layout.
#include <gtest/gtest.h>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

TEST(Hosts, SumsAreMadeHostByHostHoweverRanksAreDealtOut) {
  // 1e8 + 1 is 1e8 in float: the order shows in the result.
  const float values[] = {1e8f, 1.f, -1e8f, 1.f};
  struct Case {
    std::vector<std::string> hosts;
    float sum;
  };
  const Case cases[] = {{{"a", "a", "b", "b"}, (values[0] + values[1]) + (values[2] + values[3])},
                        {{"a", "b", "a", "b"}, (values[0] + values[2]) + (values[1] + values[3])},
                        {{"a", "b", "b", "a"}, (values[0] + values[3]) + (values[1] + values[2])},
                        {{"a", "b", "c", "d"}, ((values[0] + values[1]) + values[2]) + values[3]}};
  for (const Case& one : cases) {
    const auto results = RunProcesses(4,
                                      [&](int rank) {
                                        std::vector<float> data(5000, values[rank]);
                                        EXPECT_EQ(Sum(nullptr, "x", data.data(), data.size()), HVD_OK)
                                            << hvd_last_error();
                                        EXPECT_EQ(data, std::vector<float>(data.size(), one.sum));
                                        std::vector<float> rows(4, values[rank]);
                                        Request request(HVD_REDUCESCATTER, "y", {4}, rows.data());
                                        hvd_output output = EmptyOutput();
                                        EXPECT_EQ(hvd_run(nullptr, request, &output), HVD_OK) << hvd_last_error();
                                        EXPECT_EQ(*static_cast<float*>(output.data), one.sum);
                                        hvd_free(output.data);
                                        return 0;
                                      },
                                      {}, {.host_ids = one.hosts});
    for (const auto& result : results) EXPECT_EQ(result.status, 0) << one.hosts[1] << one.hosts[2];
  }
}

}  // namespace
}  // namespace hvd::test
