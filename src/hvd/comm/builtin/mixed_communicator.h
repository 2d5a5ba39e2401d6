// SPDX-License-Identifier: Apache-2.0
#pragma once
// Process sets that span hosts of which at least one has several members. Large allreduces are summed on each host
// first (collective/hierarchy); everything else goes from member to member as in PairCommunicator.
//
// Whether a host can do its part (its members share memory, or there is only one) is known to that host alone. So
// before its first large allreduce every member tells every other, once; all come to the same answer, and it stays.

#include <deque>
#include <memory>
#include <vector>

#include "hvd/collective/hierarchy/hierarchical_reduce.h"
#include "hvd/comm/builtin/pair_communicator.h"
#include "hvd/comm/builtin/window_communicator.h"

namespace hvd::comm::builtin {

struct MixedOptions {
  PairOptions pairs;                         // to all members; its order tells who is on which host
  std::unique_ptr<WindowCommunicator> here;  // the members of this host, in their order; nullptr: none but this one, or
                                             // they share no memory
  std::vector<PeerByteCounts*> flows;        // to them, by their number on this host
};

class MixedCommunicator final : public Communicator {
 public:
  MixedCommunicator(MixedOptions options, const algorithms::Table& table);

  // How data travels through the shared memory of a host: what `here` must be made with.
  static collective::window::Staging StagingBy(const algorithms::Table& table, int members);

  std::unique_ptr<collective::Machine> Start(uint64_t position, const Work* work) override;
  void Retune(uint64_t from, uint64_t oldest, const algorithms::Table& table) override;
  const ActivityNames& activities() const override { return kTcpActivities; }

  // Whether the members sum on each host. kWaiting: some have not told yet; kFailed: see agreement_error().
  collective::Progress Agree();
  bool agreed() const { return agreed_; }
  Error agreement_error() const;
  void CollectSilent(std::vector<int>* members) const { agreement_->CollectAwaited(members); }

  PairCommunicator& pairs() { return pairs_; }
  WindowCommunicator* here() { return options_.here.get(); }
  // Moves the data of an allreduce; where members share memory, all have put their marks at `local_position`.
  std::unique_ptr<collective::Machine> Move(uint64_t position, uint64_t local_position, const Work* work);
  // The number in the process set of member `local` of this host.
  int MemberHere(int local) const { return hosts_[my_host_][local]; }

 private:
  void BeginAgreement(uint64_t position);
  // Those from positions up to this one.
  void RecutHere(uint64_t position);
  collective::hierarchy::CrossHostPeers TwinsAt(uint64_t position) const;

  MixedOptions options_;
  PairCommunicator pairs_;
  const std::vector<algorithms::Choice> choices_;  // of allreduce
  ByPosition<size_t> chunk_bytes_;
  // Changes for `here`, whose positions are numbered when they are started.
  struct Change {
    uint64_t from;
    size_t chunk_bytes;
    LocationRules locations;
  };
  std::deque<Change> changes_here_;
  std::vector<std::vector<int>> hosts_;  // their members
  int my_host_ = 0;
  int my_local_ = 0;
  int owners_ = 0;
  uint64_t next_local_position_ = 0;
  std::unique_ptr<collective::pairwise::Link> agreement_;
  std::vector<uint64_t> told_;  // by member: whether its host can
  int misled_by_ = -1;          // a member whose word was changed on its way
  std::shared_ptr<int> untold_ = std::make_shared<int>(0);
  bool agreed_ = false;
};

}  // namespace hvd::comm::builtin
