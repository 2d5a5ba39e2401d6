// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/agent_protocol.h"

#include <bit>

namespace hvd::launch {
namespace {

class Writer {
 public:
  explicit Writer(std::string* out) : bytes_(out) {}
  void Put(int value) { bytes_.Put(static_cast<uint32_t>(value)); }
  void Put(double value) { bytes_.Put(std::bit_cast<uint64_t>(value)); }
  void Put(const std::string& text) {
    bytes_.Put(static_cast<uint32_t>(text.size()));
    bytes_.PutBytes(text);
  }
  void Put(const std::vector<std::string>& list) {
    bytes_.Put(static_cast<uint32_t>(list.size()));
    for (const std::string& one : list) Put(one);
  }
  void Put(const Ending& ending) {
    Put(ending.code.has_value() ? 1 : 0);
    Put(ending.code.value_or(0));
    Put(ending.signal);
    Put(ending.told ? 1 : 0);
    Put(ending.exec_error);
  }
  void Put(const Slot& slot) {
    Put(slot.host);
    for (const int number : {slot.rank, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size}) {
      Put(number);
    }
  }
  void Put(const Plan& plan) {
    Put(static_cast<int>(plan.slots.size()));
    for (const Slot& slot : plan.slots) Put(slot);
    Put(plan.folder);
    Put(plan.program);
    Put(plan.arguments);
    Put(plan.environment.Lines());
  }

 private:
  net::ByteWriter bytes_;
};

class Reader {
 public:
  explicit Reader(net::Bytes bytes) : bytes_(bytes) {}
  void Get(int* value) { *value = static_cast<int>(bytes_.Get<uint32_t>()); }
  void Get(double* value) { *value = std::bit_cast<double>(bytes_.Get<uint64_t>()); }
  void Get(std::string* text) { *text = net::AsText(bytes_.GetBytes(bytes_.Get<uint32_t>())); }
  void Get(std::vector<std::string>* list) {
    for (size_t count = Count(4); count > 0; --count) Get(&list->emplace_back());
  }
  void Get(Ending* ending) {
    int has_code = 0, code = 0, told = 0;
    Get(&has_code);
    Get(&code);
    if (has_code != 0) ending->code = code;
    Get(&ending->signal);
    Get(&told);
    ending->told = told != 0;
    Get(&ending->exec_error);
  }
  void Get(Slot* slot) {
    Get(&slot->host);
    for (int* number : {&slot->rank, &slot->local_rank, &slot->local_size, &slot->cross_rank, &slot->cross_size}) {
      Get(number);
    }
  }
  void Get(Plan* plan) {
    for (size_t count = Count(24); count > 0; --count) Get(&plan->slots.emplace_back());
    Get(&plan->folder);
    Get(&plan->program);
    Get(&plan->arguments);
    std::vector<std::string> lines;
    Get(&lines);
    for (const std::string& line : lines) plan->environment.Add(line);
  }
  bool Complete() const { return bytes_.Complete(); }

 private:
  // A number of things that take at least so many bytes each: no more than can be there.
  size_t Count(size_t least_bytes) {
    const auto count = bytes_.Get<uint32_t>();
    if (count <= bytes_.left() / least_bytes) return count;
    bytes_.GetBytes(bytes_.left() + 1);  // makes it bad
    return 0;
  }

  net::ByteReader bytes_;
};

// Which fields a kind has, in order; the same for both directions.
template <typename Coder, typename Fields>
bool EachField(Coder& coder, Fields& fields) {
  const auto all = [&](auto&... field) { (coder(field), ...); };
  switch (fields.kind) {
    case Kind::kHello:
      all(fields.text, fields.list, fields.more);
      return true;
    case Kind::kRefused:
      all(fields.number, fields.text);
      return true;
    case Kind::kStarted:
    case Kind::kAsk:
    case Kind::kPass:
      all(fields.rank, fields.number);
      return true;
    case Kind::kOutput:
      all(fields.rank, fields.number, fields.text);
      return true;
    case Kind::kEnded:
      all(fields.rank, fields.ending);
      return true;
    case Kind::kTurnedAway:
      all(fields.text);
      return true;
    case Kind::kStart:
      all(fields.text, fields.plan, fields.place.store, fields.place.job, fields.grace_s);
      return true;
    case Kind::kKill:
      all(fields.rank);
      return true;
    case Kind::kFinish:
      all(fields.number);
      return true;
    case Kind::kDone:
    case Kind::kBeat:
      return true;
  }
  return false;
}

}  // namespace

std::string Encode(const Message& message) {
  std::string body(1, static_cast<char>(message.kind));
  Writer writer(&body);
  const auto put = [&](const auto& field) { writer.Put(field); };
  EachField(put, message);
  std::string frame;
  net::ByteWriter(&frame).Put(static_cast<uint32_t>(body.size()));
  return frame + body;
}

Result<Message> DecodeMessage(net::Bytes body) {
  Message message;
  if (body.empty()) return Fail(Code::kInvalidArgument, "an empty message");
  message.kind = static_cast<Kind>(body[0]);
  Reader reader(body.subspan(1));
  const auto get = [&](auto& field) { reader.Get(&field); };
  if (!EachField(get, message)) return Fail(Code::kInvalidArgument, "a message of unknown kind {}", body[0]);
  if (!reader.Complete()) return Fail(Code::kInvalidArgument, "a message of kind {} with a wrong length", body[0]);
  return message;
}

}  // namespace hvd::launch
