// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/output/output.h"

#include <chrono>

namespace hvd::launch {

Output::Output(OutputOptions options, int ranks, Sink* out, Sink* err)
    : options_(std::move(options)), out_(out), err_(err) {
  for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<OneRank>());
}

void Output::Begin(const Slot& slot, int pid) {
  while (static_cast<int>(ranks_.size()) <= slot.key()) ranks_.push_back(std::make_unique<OneRank>());
  Rename(slot, pid);
  OneRank& one = *ranks_[slot.key()];
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    one.cutters[static_cast<int>(stream)].emplace(
        [this, rank = slot.key(), stream](std::string_view line) { Line(rank, stream, line); });
  }
}

void Output::Rename(const Slot& slot, int pid) {
  OneRank& one = *ranks_[slot.key()];
  one.rank = slot.rank;
  one.blame.reset();
  one.labels[0].emplace(options_.out, slot, pid, "stdout");
  one.labels[1].emplace(options_.err, slot, pid, "stderr");
}

void Output::Take(int rank, Stream stream, std::string_view bytes, Time now) {
  if (options_.files) {
    while (options_.files->ranks() <= rank) {
      if (const Status added = options_.files->Add(); !added) {
        err_->Write(fmt::format("horovodrun: {}\n", added.error().message));
        break;
      }
    }
    if (auto kept = options_.files->Append(rank, stream == Stream::kErr, bytes); !kept) {
      err_->Write(fmt::format("horovodrun: {}\n", kept.error().message));
    }
  }
  ranks_[rank]->cutters[static_cast<int>(stream)]->Feed(bytes, now);
}

void Output::End(int rank) {
  for (auto& cutter : ranks_[rank]->cutters) {
    if (cutter) cutter->End();
  }
  OneRank& one = *ranks_[rank];
  RepeatedTraces::End(&one.held_trace, [&](std::string_view line) { Show(one, Stream::kErr, line); });
}

void Output::Line(int rank, Stream stream, std::string_view line) {
  OneRank& one = *ranks_[rank];
  if (stream == Stream::kErr) one.tail.Add(line);
  if (const auto blame = FindBlame(line); blame && blame->rank != one.rank) one.blame = blame;
  if (!Shows(rank)) return;
  if (stream == Stream::kOut) return Show(one, stream, line);
  traces_.Take(one.rank, line, &one.held_trace, [&](std::string_view shown) { Show(one, stream, shown); });
}

void Output::Show(const OneRank& one, Stream stream, std::string_view line) {
  std::string text = one.labels[static_cast<int>(stream)]->Text(std::chrono::system_clock::now());
  text.append(line).push_back('\n');
  (stream == Stream::kOut ? out_ : err_)->Write(text);
}

}  // namespace hvd::launch
