// SPDX-License-Identifier: Apache-2.0
#pragma once
// A value that changes at positions of a log or stream. Operations at earlier positions may begin after the change was
// made known, and have the value of their own position all the same; so have all members.
//
// Thread safety: none; call with the progress token.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace hvd::comm {

template <typename T>
class ByPosition {
 public:
  explicit ByPosition(T first) : latest_(std::move(first)) {}

  // `from` on it is this one. Ascending. Of positions below `oldest` nobody asks any more.
  void Set(uint64_t from, uint64_t oldest, T value) {
    if (from > from_) earlier_.push_back({from, std::move(latest_)});  // else nothing happened since the last change
    latest_ = std::move(value);
    from_ = from;
    while (!earlier_.empty() && earlier_.front().end <= oldest) earlier_.pop_front();
  }

  const T& At(uint64_t position) const { return position >= from_ ? latest_ : Earlier(position); }
  const T& latest() const { return latest_; }
  size_t kept() const { return earlier_.size(); }

 private:
  struct Past {
    uint64_t end;
    T value;
  };

  const T& Earlier(uint64_t position) const {
    for (const Past& past : earlier_) {
      if (position < past.end) return past.value;
    }
    return latest_;
  }

  T latest_;
  uint64_t from_ = 0;
  std::deque<Past> earlier_;  // in order
};

}  // namespace hvd::comm
