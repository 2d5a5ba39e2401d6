// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/client.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "hvd/net/deadline.h"
#include "hvd/rendezvous/limits.h"
#include "hvd/rendezvous/tcp/dial.h"

namespace hvd::rendezvous::tcp {
namespace {

// Bodies are read in pieces of this size, so that memory grows with what arrives.
constexpr size_t kBodyReadBytes = 256 << 10;

uint64_t Micros(Duration timeout) {
  const auto micros =
      std::chrono::ceil<std::chrono::microseconds>(std::min<Duration>(timeout, std::chrono::hours(24 * 365)));
  return static_cast<uint64_t>(std::max<int64_t>(0, micros.count()));
}

Result<std::string> ReadBody(net::Stream& stream, Time deadline) {
  std::array<uint8_t, kLengthBytes> header;
  HVD_RETURN_IF_ERROR(net::ReadFull(stream, header, deadline));
  HVD_ASSIGN_OR_RETURN(const size_t length, DecodeLength(header, kMaxResponseBytes));
  std::string body;
  while (body.size() < length) {
    const size_t start = body.size();
    body.resize(std::min(length, start + kBodyReadBytes));
    const net::MutableBytes piece(reinterpret_cast<uint8_t*>(body.data()) + start, body.size() - start);
    HVD_RETURN_IF_ERROR(net::ReadFull(stream, piece, deadline));
  }
  return body;
}

}  // namespace

Result<std::unique_ptr<rendezvous::Store>> Client::Create(const Options& options) {
  HVD_ASSIGN_OR_RETURN(std::unique_ptr<net::Stream> stream, Dial(options));
  return std::unique_ptr<rendezvous::Store>(new Client(options.address, options.timeout, std::move(stream)));
}

Client::~Client() {
  if (!broken_) (void)stream_->TryWrite(net::AsBytes(Encode(Request{.op = Op::kGoodbye})));
}

Result<Response> Client::Exchange(const Request& request, Time deadline) {
  HVD_RETURN_IF_ERROR(net::WriteFull(*stream_, net::AsBytes(Encode(request)), deadline));
  HVD_ASSIGN_OR_RETURN(const std::string body, ReadBody(*stream_, deadline));
  return DecodeResponse(net::AsBytes(body));
}

Result<Response> Client::Ask(const Request& request, Duration timeout) {
  if (broken_) return Fail(*broken_);
  auto response = Exchange(request, net::DeadlineAfter(timeout));
  if (!response) {
    const Error& error = response.error();
    if (error.code == Code::kDeadlineExceeded) {
      // Not kDeadlineExceeded: that means a key that did not come.
      broken_ = Error{Code::kUnknown, fmt::format("the store at {} did not answer within {:.3g} s; is rank 0 stopped?",
                                                  address_, net::InSeconds(timeout))};
    } else {
      broken_ =
          Error{error.code, fmt::format("lost the store at {}: {}; did rank 0 end? Its own output should tell why",
                                        address_, error.message)};
    }
    return Fail(*broken_);
  }
  if (response->code != Code::kOk) return Fail(Error{response->code, std::move(response->message)});
  return response;
}

Status Client::Set(const std::string& key, const std::string& value) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  HVD_RETURN_IF_ERROR(CheckValue(key, value));
  HVD_RETURN_IF_ERROR(Ask(Request{.op = Op::kSet, .key = key, .value = value}, timeout_));
  return {};
}

Result<std::vector<std::string>> Client::Wait(const std::vector<std::string>& keys, Duration timeout) {
  HVD_RETURN_IF_ERROR(CheckKeys(keys));
  const Time deadline = net::DeadlineAfter(timeout);
  std::vector<std::string> values;
  values.reserve(keys.size());
  while (values.size() < keys.size()) {
    const auto first = keys.begin() + static_cast<ptrdiff_t>(values.size());
    const size_t count = std::min(keys.size() - values.size(), kMaxKeysPerWait);
    Request request{.op = Op::kWait};
    request.keys.assign(first, first + static_cast<ptrdiff_t>(count));
    const Duration left = net::Left(deadline);
    request.timeout_us = Micros(left);
    // The server answers when the time is up; only a server that is gone makes us wait beyond.
    const Duration grace = std::min<Duration>(left, std::chrono::hours(24 * 365)) + timeout_;
    HVD_ASSIGN_OR_RETURN(Response response, Ask(request, grace));
    if (response.values.size() != count)
      return Fail(Code::kInternal, "the store answered with {} values for {} keys", response.values.size(), count);
    std::move(response.values.begin(), response.values.end(), std::back_inserter(values));
  }
  return values;
}

Result<int64_t> Client::Add(const std::string& key, int64_t delta) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  HVD_ASSIGN_OR_RETURN(const Response response, Ask(Request{.op = Op::kAdd, .key = key, .delta = delta}, timeout_));
  return response.number;
}

Status Client::Delete(const std::string& key) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  HVD_RETURN_IF_ERROR(Ask(Request{.op = Op::kDelete, .key = key}, timeout_));
  return {};
}

}  // namespace hvd::rendezvous::tcp
