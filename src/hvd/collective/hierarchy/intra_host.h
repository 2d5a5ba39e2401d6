// SPDX-License-Identifier: Apache-2.0
#pragma once
// This host's side of an allreduce across hosts: the members that are here, their data chunk by chunk, and how far each
// of them is. Members are numbered on the host, 0 to members() - 1.
//
// in     chunks of a member's input that can be read.
// out    chunks whose slice a member has stored to all members of the host.
//
// Thread safety: call with the progress token.

#include <cstddef>
#include <cstdint>

namespace hvd::collective::hierarchy {

class IntraHost {
 public:
  virtual ~IntraHost() = default;
  virtual int members() const = 0;
  virtual int me() const = 0;
  virtual size_t chunk_bytes() const = 0;
  // Whether this member copies each chunk of its input to Source(me()); at most depth() chunks then have a place at a
  // time. And whether it copies each result from Target(me()). Else its data is read and written where it is.
  virtual bool copied_in() const = 0;
  virtual bool copied_out() const = 0;
  virtual size_t depth() const = 0;
  virtual std::byte* Source(int member, size_t chunk) const = 0;
  virtual std::byte* Target(int member, size_t chunk) const = 0;

  virtual uint64_t In(int member) const = 0;
  virtual uint64_t Out(int member) const = 0;
  // A member one of whose counters is damaged; -1: none is seen.
  virtual int Damaged() const { return -1; }
  virtual void PublishIn(uint64_t chunks) = 0;
  virtual void PublishOut(uint64_t chunks) = 0;
};

}  // namespace hvd::collective::hierarchy
