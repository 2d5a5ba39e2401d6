// SPDX-License-Identifier: Apache-2.0
#pragma once
// What horovodrun and its agents say to each other, once each has proven to know the job's token (channel.h). A frame
// is a 32-bit length and a body; a body is one byte of kind and the fields of that kind; integers are little-endian,
// texts and lists begin with a 32-bit count.
//
//   agent -> horovodrun   hello     version, names of its host, the addresses at which it reached us
//                         refused   why it cannot start ranks, and the exit code for that
//                         started   rank, pid
//                         output    rank, stream, bytes
//                         ended     rank, how
//                         done      nothing is left on this host; the last word
//   horovodrun -> agent   turned away   why
//                         start     the plan, which host it is, where ranks meet
//                         ask       rank, signal: end the rank
//                         pass      rank, signal: for the rank to handle
//                         kill      rank; below 0: all
//                         finish    end what ranks left behind, then say done
//   both                  beat      nothing but a sign of life
//
// hello has the same form in all versions, so that different ones can say so. Decoding is pure, checks every length
// against what is there, and never reads outside its input.

#include <cstdint>
#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/plan/plan.h"
#include "hvd/launch/report/diagnose.h"
#include "hvd/net/bytes.h"

namespace hvd::launch {

enum class Kind : uint8_t {
  kHello = 1,
  kRefused,
  kStarted,
  kOutput,
  kEnded,
  kDone,
  kTurnedAway,
  kStart,
  kAsk,
  kPass,
  kKill,
  kFinish,
  kBeat,
};

// The fields of all kinds; those of the others are empty.
struct Message {
  Kind kind = Kind::kBeat;
  int rank = -1;
  int number = 0;                   // pid, signal, exit code, stream, or whether to kill
  std::string text{};               // version, why, or bytes
  std::vector<std::string> list{};  // names
  std::vector<std::string> more{};  // addresses
  Ending ending{};
  Plan plan{};
  RankPlace place{};
  double grace_s = 0;
};

// More than any plan: what a peer may make this process hold.
inline constexpr size_t kMostMessageBytes = 64 << 20;

// A whole frame, length included.
std::string Encode(const Message& message);
// A body, without its length.
Result<Message> DecodeMessage(net::Bytes body);

}  // namespace hvd::launch
