// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes the texts of dumps to a file, on a thread of its own. A file system that does not answer blocks that thread
// and nothing else.
//
// The thread exists from the first text on. If it is blocked at the end, it is left behind, with all that it uses.
//
// Thread safety: everything.

#include <memory>
#include <string>

namespace hvd::engine {

class DumpWriter {
 public:
  DumpWriter(std::string folder, std::string path);
  // Waits at most 2 s until everything is written.
  ~DumpWriter();
  DumpWriter(const DumpWriter&) = delete;
  DumpWriter& operator=(const DumpWriter&) = delete;

  // Replaces the file by `text`. A text that was not begun yet when the next one comes is dropped.
  void Write(std::string text);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace hvd::engine
