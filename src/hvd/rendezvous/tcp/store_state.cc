// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/store_state.h"

#include <algorithm>
#include <chrono>

#include "hvd/rendezvous/limits.h"

namespace hvd::rendezvous::tcp {
namespace {

// Nobody waits longer, and adding it to a time cannot overflow.
constexpr std::chrono::microseconds kLongestWait = std::chrono::hours(24 * 365);

Response ErrorResponse(Error error) {
  Response response;
  response.code = error.code;
  response.message = std::move(error.message);
  return response;
}

}  // namespace

void StoreState::Handle(ClientId client, Request request, Time now) {
  switch (request.op) {
    case Op::kSet:
      Set(request.key, std::move(request.value));
      return answer_(client, Response{});
    case Op::kAdd:
      return answer_(client, Add(request));
    case Op::kDelete:
      values_.erase(request.key);
      return answer_(client, Response{});
    case Op::kWait:
      return Park(client, std::move(request), now);
    case Op::kGoodbye:
      return;
  }
}

void StoreState::Set(const std::string& key, std::string value) {
  values_.insert_or_assign(key, std::move(value));
  const auto node = waiting_for_.extract(key);
  if (node.empty()) return;
  for (const ClientId client : node.mapped()) {
    Parked& parked = parked_.at(client);
    if (auto missing = FirstMissing(parked.keys)) {
      parked.filed_under = *missing;
      waiting_for_[*missing].push_back(client);
      continue;
    }
    const Response response = Values(parked.keys);
    deadlines_.erase({parked.deadline, client});
    parked_.erase(client);
    answer_(client, response);
  }
}

Response StoreState::Add(const Request& request) {
  const auto old = values_.find(request.key);
  auto sum = AddToCounter(request.key, old == values_.end() ? "" : old->second, request.delta);
  if (!sum) return ErrorResponse(std::move(sum).error());
  Set(request.key, std::to_string(*sum));
  Response response;
  response.kind = Response::Kind::kNumber;
  response.number = *sum;
  return response;
}

void StoreState::Park(ClientId client, Request request, Time now) {
  auto missing = FirstMissing(request.keys);
  if (!missing) return answer_(client, Values(request.keys));
  Parked parked;
  parked.keys = std::move(request.keys);
  const auto longest = static_cast<uint64_t>(kLongestWait.count());
  parked.timeout = std::chrono::microseconds(std::min(request.timeout_us, longest));
  parked.deadline = now + parked.timeout;
  parked.filed_under = *missing;
  if (parked.deadline <= now) return answer_(client, TimedOut(parked));
  waiting_for_[*missing].push_back(client);
  deadlines_.emplace(parked.deadline, client);
  parked_.insert_or_assign(client, std::move(parked));
}

std::optional<std::string> StoreState::FirstMissing(const std::vector<std::string>& keys) const {
  const auto missing = std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return !values_.contains(key); });
  if (missing == keys.end()) return std::nullopt;
  return *missing;
}

Response StoreState::Values(const std::vector<std::string>& keys) const {
  size_t bytes = 16;
  for (const std::string& key : keys) bytes += 4 + values_.at(key).size();
  if (bytes > kMaxResponseBytes) {
    return ErrorResponse(
        {Code::kResourceExhausted, fmt::format("{} values of {} bytes are too many for one wait (at most {})",
                                               keys.size(), bytes, kMaxResponseBytes)});
  }
  Response response;
  response.kind = Response::Kind::kValues;
  response.values.reserve(keys.size());
  for (const std::string& key : keys) response.values.push_back(values_.at(key));
  return response;
}

Response StoreState::TimedOut(const Parked& parked) const {
  std::vector<std::string> missing;
  for (const std::string& key : parked.keys) {
    if (!values_.contains(key)) missing.push_back(key);
  }
  return ErrorResponse(MissingKeys(missing, parked.timeout));
}

void StoreState::Forget(ClientId client) {
  const auto found = parked_.find(client);
  if (found == parked_.end()) return;
  deadlines_.erase({found->second.deadline, client});
  if (const auto list = waiting_for_.find(found->second.filed_under); list != waiting_for_.end()) {
    std::erase(list->second, client);
    if (list->second.empty()) waiting_for_.erase(list);
  }
  parked_.erase(found);
}

std::optional<Time> StoreState::NextDeadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

void StoreState::Expire(Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const ClientId client = deadlines_.begin()->second;
    const Response response = TimedOut(parked_.at(client));
    Forget(client);
    answer_(client, response);
  }
}

}  // namespace hvd::rendezvous::tcp
