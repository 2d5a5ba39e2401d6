// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hvd::rendezvous::tcp {
namespace {

// Everything that the client will ever send lies ready, in pieces of one TLS record. A socket tells of such bytes once:
// what the connection leaves undone after it has read the last of them stays undone.
class ReadyStream final : public net::Stream {
 public:
  explicit ReadyStream(std::string input) : input_(std::move(input)) {}
  int fd() const override { return -1; }
  Result<net::Want> TryHandshake() override { return net::Want::kNothing; }
  Result<net::Transfer> TryRead(net::MutableBytes into) override {
    const size_t count = std::min({into.size(), input_.size() - taken_, size_t{16 << 10}});
    if (count == 0) return net::Transfer{.want = net::Want::kRead};
    std::copy_n(input_.data() + taken_, count, reinterpret_cast<char*>(into.data()));
    taken_ += count;
    return net::Transfer{.bytes = count};
  }
  Result<net::Transfer> TryWrite(net::Bytes data) override { return net::Transfer{.bytes = data.size()}; }
  bool drained() const { return taken_ == input_.size(); }

 private:
  std::string input_;
  size_t taken_ = 0;
};

TEST(Connection, ARequestThatTookEveryReadOfACallIsServedInThatCall) {
  for (size_t records = 0; records <= 24; ++records) {
    const Request request{.op = Op::kSet, .key = "k", .value = std::string(records * (16 << 10), 'v')};
    auto stream = std::make_unique<ReadyStream>(std::string(kPreface) + Encode(request));
    const ReadyStream& socket = *stream;
    int served = 0;
    Connection connection(std::move(stream), [&](const Request&) { ++served; });
    while (!socket.drained()) ASSERT_TRUE(connection.Advance(EPOLLIN));
    EXPECT_EQ(served, 1) << records << " records";
  }
}

}  // namespace
}  // namespace hvd::rendezvous::tcp
