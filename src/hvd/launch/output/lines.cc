// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/output/lines.h"

#include <algorithm>

#include "hvd/base/utf8.h"

namespace hvd::launch {

void LineCutter::Feed(std::string_view bytes, Time now) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    const size_t room = kLongest - std::min(line_.size(), kLongest);
    line_ += bytes.substr(0, std::min(end, room));
    if (end > room) {
      bytes.remove_prefix(room);
      const std::string whole(Cut(line_, kLongest - 4));
      const std::string rest = line_.substr(whole.size());
      emit_(whole);
      line_ = rest;
      continue;
    }
    bytes.remove_prefix(end);
    if (bytes.empty()) break;
    if (bytes.front() == '\n') {
      GiveOut();
      shown_ = now;
    } else {
      Rewrite(now);
    }
    bytes.remove_prefix(1);
  }
}

void LineCutter::Rewrite(Time now) {
  // "\r\n" and "\r" at a line's start replace nothing.
  if (line_.empty()) return;
  rewritten_ = std::move(line_);
  line_.clear();
  if (!rewriting_ && shown_ == Time{}) shown_ = now;
  rewriting_ = true;
  if (now - shown_ < kPatience) return;
  emit_(rewritten_);
  rewritten_.clear();
  shown_ = now;
}

void LineCutter::GiveOut() {
  if (line_.empty() && rewriting_) {
    if (!rewritten_.empty()) emit_(rewritten_);
  } else {
    emit_(line_);
  }
  line_.clear();
  rewritten_.clear();
  rewriting_ = false;
}

void LineCutter::End() {
  if (!line_.empty() || !rewritten_.empty()) GiveOut();
}

}  // namespace hvd::launch
