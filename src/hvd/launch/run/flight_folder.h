// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the ranks of this host write dumps of the flight recorder unless the user names a folder: below the folder of
// logs, else in a folder of the job's own below TMPDIR or /tmp. Kept after a failure only.
//
// Thread safety: none.

#include <string>

#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

class FlightFolder {
 public:
  // `logs`: the folder of the ranks' output, or empty. If no folder can be made, there are no dumps.
  FlightFolder(const std::string& logs, const Environment& environment);
  // Removes the dumps, unless Keep kept them, and then the folder if it was made here and has nothing else.
  ~FlightFolder();
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

  // Empty: there is none, or the user has named one.
  const std::string& path() const { return path_; }
  // The same if it is below TMPDIR or /tmp, where nobody finds it without a report.
  std::string temporary() const { return temporary_ ? path_ : std::string(); }
  // The user ends the job. Dumps that are there by then are of a stall: they are kept, whatever Keep is told.
  void KeepWhatIsThere() { stalled_ = HasDumps(); }
  // Keeps the folder if the job failed and there are dumps. Returns where dumps are, or nothing.
  std::string Keep(bool failed);

 private:
  bool HasDumps() const;

  std::string path_;
  bool temporary_ = false;
  bool made_ = false;     // by this program, so that it may go with the last dump
  bool stalled_ = false;  // when the user ended the job
  std::string given_;     // by the user
};

}  // namespace hvd::launch
