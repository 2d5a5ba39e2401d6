// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/protocol.h"

#include <algorithm>

namespace hvd::rendezvous::tcp {
namespace {

using net::ByteReader;
using net::Bytes;
using net::ByteWriter;

void PutKey(ByteWriter& writer, const std::string& key) {
  writer.Put(static_cast<uint16_t>(key.size()));
  writer.PutBytes(key);
}

void PutValue(ByteWriter& writer, const std::string& value) {
  writer.Put(static_cast<uint32_t>(value.size()));
  writer.PutBytes(value);
}

// Both return false for a length that is not allowed; a text that is not all there makes the reader bad.
bool GetKey(ByteReader& reader, std::string* key) {
  const auto length = reader.Get<uint16_t>();
  if (length == 0 || length > kMaxKeyBytes) return false;
  *key = net::AsText(reader.GetBytes(length));
  return true;
}

bool GetValue(ByteReader& reader, std::string* value) {
  const auto length = reader.Get<uint32_t>();
  if (length > kMaxValueBytes) return false;
  *value = net::AsText(reader.GetBytes(length));
  return true;
}

bool GetKeys(ByteReader& reader, std::vector<std::string>* keys) {
  const auto count = reader.Get<uint16_t>();
  // Every key takes three bytes at least, so the reservation is bounded by what has arrived.
  if (count > kMaxKeysPerWait || size_t{count} * 3 > reader.left()) return false;
  keys->resize(count);
  return std::all_of(keys->begin(), keys->end(), [&](std::string& key) { return GetKey(reader, &key); });
}

bool GetValues(ByteReader& reader, std::vector<std::string>* values) {
  const auto count = reader.Get<uint16_t>();
  if (count > kMaxKeysPerWait || size_t{count} * 4 > reader.left()) return false;
  values->resize(count);
  return std::all_of(values->begin(), values->end(), [&](std::string& value) { return GetValue(reader, &value); });
}

bool GetFields(ByteReader& reader, Request* request) {
  switch (request->op) {
    case Op::kSet:
      return GetKey(reader, &request->key) && GetValue(reader, &request->value);
    case Op::kWait:
      request->timeout_us = reader.Get<uint64_t>();
      return GetKeys(reader, &request->keys);
    case Op::kAdd:
      if (!GetKey(reader, &request->key)) return false;
      request->delta = reader.Get<int64_t>();
      return true;
    case Op::kDelete:
      return GetKey(reader, &request->key);
    case Op::kGoodbye:
      return true;
  }
  return false;
}

bool GetFields(ByteReader& reader, Response* response) {
  if (response->code != Code::kOk) {
    const size_t length = reader.left();
    if (length > kMaxMessageBytes || response->kind != Response::Kind::kNothing) return false;
    response->message = net::AsText(reader.GetBytes(length));
    return true;
  }
  switch (response->kind) {
    case Response::Kind::kNothing:
      return true;
    case Response::Kind::kNumber:
      response->number = reader.Get<int64_t>();
      return true;
    case Response::Kind::kValues:
      return GetValues(reader, &response->values);
  }
  return false;
}

std::string WithLength(const std::string& body) {
  std::string frame;
  frame.reserve(kLengthBytes + body.size());
  ByteWriter writer(&frame);
  PutValue(writer, body);
  return frame;
}

}  // namespace

std::string Encode(const Request& request) {
  std::string body;
  ByteWriter writer(&body);
  writer.Put(static_cast<uint8_t>(request.op));
  switch (request.op) {
    case Op::kSet:
      PutKey(writer, request.key);
      PutValue(writer, request.value);
      break;
    case Op::kWait:
      writer.Put(request.timeout_us);
      writer.Put(static_cast<uint16_t>(request.keys.size()));
      for (const std::string& key : request.keys) PutKey(writer, key);
      break;
    case Op::kAdd:
      PutKey(writer, request.key);
      writer.Put(request.delta);
      break;
    case Op::kDelete:
      PutKey(writer, request.key);
      break;
    case Op::kGoodbye:
      break;
  }
  return WithLength(body);
}

std::string Encode(const Response& response) {
  std::string body;
  ByteWriter writer(&body);
  writer.Put(static_cast<uint8_t>(response.code));
  if (response.code != Code::kOk) {
    writer.Put(static_cast<uint8_t>(Response::Kind::kNothing));
    writer.PutBytes(std::string_view(response.message).substr(0, kMaxMessageBytes));
    return WithLength(body);
  }
  writer.Put(static_cast<uint8_t>(response.kind));
  if (response.kind == Response::Kind::kNumber) writer.Put(response.number);
  if (response.kind == Response::Kind::kValues) {
    writer.Put(static_cast<uint16_t>(response.values.size()));
    for (const std::string& value : response.values) PutValue(writer, value);
  }
  return WithLength(body);
}

Result<Request> DecodeRequest(Bytes body) {
  ByteReader reader(body);
  Request request;
  request.op = static_cast<Op>(reader.Get<uint8_t>());
  if (GetFields(reader, &request) && reader.Complete()) return request;
  return Fail(Code::kInvalidArgument, "malformed store request of {} bytes", body.size());
}

Result<Response> DecodeResponse(Bytes body) {
  ByteReader reader(body);
  Response response;
  const auto code = reader.Get<uint8_t>();
  response.kind = static_cast<Response::Kind>(reader.Get<uint8_t>());
  response.code = static_cast<Code>(code);
  if (code <= static_cast<uint8_t>(Code::kInternal) && GetFields(reader, &response) && reader.Complete())
    return response;
  return Fail(Code::kInternal, "malformed store response of {} bytes", body.size());
}

Result<size_t> DecodeLength(Bytes header, size_t limit) {
  ByteReader reader(header);
  const size_t length = reader.Get<uint32_t>();
  if (!reader.bad() && length > 0 && length <= limit) return length;
  return Fail(Code::kInvalidArgument, "store frame of {} bytes: allowed are 1 to {}", length, limit);
}

void FrameCutter::Append(Bytes bytes) {
  buffer_.erase(0, start_);
  start_ = 0;
  buffer_.append(net::AsText(bytes));
}

Result<std::optional<Bytes>> FrameCutter::Next() {
  const Bytes rest = net::AsBytes(buffer_).subspan(start_);
  if (rest.size() < kLengthBytes) return std::optional<Bytes>();
  HVD_ASSIGN_OR_RETURN(const size_t length, DecodeLength(rest.first(kLengthBytes), limit_));
  if (rest.size() - kLengthBytes < length) return std::optional<Bytes>();
  start_ += kLengthBytes + length;
  return std::optional<Bytes>(rest.subspan(kLengthBytes, length));
}

}  // namespace hvd::rendezvous::tcp
