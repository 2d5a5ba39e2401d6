// SPDX-License-Identifier: Apache-2.0
// All interleavings of small elastic jobs: a model of the processes around the real Membership.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "hvd/launch/elastic/membership.h"

namespace hvd::launch::elastic {
namespace {

struct Limits {
  int workers, crashes, late, commits;
};

// A process of the job. Its commits are texts that begin with the text of the commit before.
struct Worker {
  enum class State { kBoot, kWaits, kInView, kAligning, kRuns, kSaved, kDone, kGone };
  State state = State::kBoot;
  int generation = 0, aligned = 0, number = -1;
  std::map<int, std::string> commits{};  // by number, the two newest

  std::string Key() const {
    std::string key = fmt::format("{} {} {} {}", static_cast<int>(state), generation, aligned, number);
    for (const auto& [at, text] : commits) key += fmt::format(" {}={}", at, text);
    return key;
  }
};

class World {
 public:
  explicit World(const Limits& limits)
      : limits_(limits),
        membership_({.wanted = limits.workers, .min_np = 1, .max_np = limits.workers}),
        crashes_(limits.crashes),
        late_(limits.late) {
    Tell({.kind = Event::Kind::kHosts, .hosts = {{"here", limits.workers}}});
  }

  bool over() const { return membership_.phase() == Membership::Phase::kEnded; }
  const std::string& wrong() const { return wrong_; }

  std::string Key() const {
    std::string key = membership_.Key();
    for (const auto& [number, worker] : workers_) {
      if (worker.state == Worker::State::kGone && !inbox_.contains(number)) continue;
      key += fmt::format("|{} {}", number, worker.Key());
    }
    for (const auto& [number, events] : inbox_) {
      for (const Event& event : events) key += fmt::format("|{}<{}", number, static_cast<int>(event.kind));
    }
    key += fmt::format("|{} {} {} {}", crashes_, late_, returned_, is_late_armed_);
    for (const SlotName& slot : armed_) key += fmt::format(" {}", slot.index);
    for (const SlotName& slot : parked_) key += fmt::format(" p{}", slot.index);
    for (const auto& [what, leaves] : decided_) key += fmt::format(" {}:{}", what, leaves);
    for (const auto& what : entered_) key += " " + what;
    return key + (has_news_ ? "n" : "");
  }

  // The worlds that can follow.
  std::vector<World> Next() const {
    std::vector<World> next;
    const auto add = [&](auto&& change) {
      World world = *this;
      if (change(&world)) next.push_back(std::move(world));
    };
    for (const auto& [number, events] : inbox_) {
      add([number = number](World* world) { return world->Deliver(number); });
    }
    for (const auto& [number, worker] : workers_) {
      if (worker.state == Worker::State::kGone) continue;
      add([number = number](World* world) { return world->Advance(number); });
      add([number = number](World* world) { return world->Leave(number); });
      if (crashes_ > 0 && worker.state != Worker::State::kDone) {
        add([number = number](World* world) { return world->Crash(number); });
      }
    }
    for (const SlotName& slot : armed_) {
      add([slot](World* world) {
        std::erase(world->armed_, slot);
        return world->Tell({.kind = Event::Kind::kFired, .timer = Timer::kRespawn, .slot = slot});
      });
    }
    for (const SlotName& slot : parked_) {
      if (!inbox_.empty()) break;
      add([slot](World* world) {
        std::erase(world->parked_, slot);
        return world->Tell({.kind = Event::Kind::kFired, .timer = Timer::kParked, .slot = slot});
      });
    }
    // Messages arrive long before the late rule applies.
    if (is_late_armed_ && late_ > 0 && inbox_.empty()) {
      add([](World* world) {
        --world->late_;
        return world->Tell({.kind = Event::Kind::kFired, .timer = Timer::kLate});
      });
    }
    return next;
  }

 private:
  using State = Worker::State;

  bool Tell(const Event& event) {
    for (const Action& action : membership_.Step(event)) Do(action);
    return true;
  }

  void Do(const Action& action) {
    switch (action.kind) {
      case Action::Kind::kSpawn:
        workers_[action.process] = {};
        break;
      case Action::Kind::kEnd:
      case Action::Kind::kLeave:
        workers_[action.process].state = State::kGone;
        inbox_[action.process] = {{.kind = Event::Kind::kEnded, .process = action.process, .good = true}};
        break;
      case Action::Kind::kKill:
        workers_[action.process].state = State::kGone;
        inbox_[action.process] = {{.kind = Event::Kind::kEnded, .process = action.process, .by_itself = false}};
        break;
      case Action::Kind::kView:
        OnView(action.view);
        break;
      case Action::Kind::kNews:
        has_news_ = true;
        break;
      case Action::Kind::kArm:
        if (action.timer == Timer::kRespawn) armed_.push_back(action.slot);
        if (action.timer == Timer::kLate) is_late_armed_ = true;
        if (action.timer == Timer::kParked) parked_.push_back(action.slot);
        break;
      case Action::Kind::kDisarm:
        if (action.timer == Timer::kLate) is_late_armed_ = false;
        if (action.timer == Timer::kParked) std::erase(parked_, action.slot);
        break;
      case Action::Kind::kWait:
      case Action::Kind::kFinish:
        break;
      case Action::Kind::kFail:
        if (std::ranges::any_of(workers_,
                                [](const auto& one) { return one.second.aligned > 0 && Lives(one.second); })) {
          wrong_ = "the job failed though a holder lives: " + action.why;
        }
        break;
    }
  }

  static bool Lives(const Worker& worker) { return worker.state != State::kGone; }

  void OnView(const View& view) {
    std::string agreed;
    for (const int rank : view.synced) {
      const Worker& worker = workers_.at(view.members[rank].process);
      const auto held = worker.commits.find(static_cast<int>(view.commit));
      if (held == worker.commits.end()) return (void)(wrong_ = "a synced rank does not hold the commit");
      if (rank == view.synced[0]) agreed = held->second;
      if (held->second != agreed) return (void)(wrong_ = "synced ranks hold different commits");
    }
    if (!view.synced.empty() && view.synced[0] != 0) wrong_ = "rank 0 does not hold the commit";
    const bool kept = agreed.starts_with(returned_);
    const bool holder_lives = std::ranges::any_of(workers_, [&](const auto& one) {
      return Lives(one.second) &&
             std::ranges::any_of(one.second.commits, [&](const auto& commit) { return commit.second == returned_; });
    });
    if (!kept && holder_lives && view.parked.empty() && limits_.late == 0) wrong_ = "a complete commit was lost";
    if (!kept && !view.rolled_back) wrong_ = "a commit was lost without a word";
    if (!kept) returned_ = agreed;
    has_news_ = false;
    decided_.clear();
    entered_.clear();
    for (const ViewMember& member : view.members) {
      Worker& worker = workers_.at(member.process);
      if (!Lives(worker)) continue;  // its end is not known yet
      if (worker.state != State::kWaits) wrong_ = "a member was not ready";
      worker.state = State::kInView;
      worker.generation = view.generation;
      std::erase_if(worker.commits, [&](const auto& one) { return one.first > view.commit; });
      worker.number = std::min<int>(worker.number, static_cast<int>(view.commit));
    }
  }

  bool Deliver(int number) {
    auto& events = inbox_.at(number);
    const Event event = events.front();
    events.pop_front();
    if (events.empty()) inbox_.erase(number);
    return Tell(event);
  }

  bool Crash(int number) {
    --crashes_;
    workers_.at(number).state = State::kGone;
    inbox_[number].push_back({.kind = Event::Kind::kEnded, .process = number, .by_itself = false});
    return true;
  }

  void Send(Event event) { inbox_[event.process].push_back(std::move(event)); }

  void SayReady(int number) {
    Worker& worker = workers_.at(number);
    worker.state = State::kWaits;
    Send({.kind = Event::Kind::kReady, .process = number, .aligned = worker.aligned, .commit = worker.number});
  }

  bool IsCurrent(const Worker& worker) const { return worker.generation == membership_.view().generation; }

  // Whether all members have come to this point, at which `number` is now.
  bool Meet(int number, const std::string& point) {
    const std::string mine = fmt::format("{}@{}", number, point);
    if (std::ranges::count(entered_, mine) == 0) {
      entered_.push_back(mine);
      std::ranges::sort(entered_);
    }
    return std::ranges::all_of(membership_.view().members, [&](const ViewMember& member) {
      return std::ranges::count(entered_, fmt::format("{}@{}", member.process, point)) > 0;
    });
  }

  // A member of its generation is gone, or waits for the next view.
  bool Leave(int number) {
    const Worker& worker = workers_.at(number);
    const bool runs = worker.state == State::kInView || worker.state == State::kAligning ||
                      worker.state == State::kRuns || worker.state == State::kSaved;
    if (!runs) return false;
    const bool revoked = !IsCurrent(worker) || std::ranges::any_of(membership_.view().members, [&](const auto& member) {
      const Worker& other = workers_.at(member.process);
      return !Lives(other) || other.state == State::kWaits;
    });
    if (!revoked) return false;
    SayReady(number);
    return true;
  }

  bool Advance(int number) {
    Worker& worker = workers_.at(number);
    if (worker.state == State::kBoot) {
      SayReady(number);
      return true;
    }
    if (worker.state == State::kDone) {
      worker.state = State::kGone;
      Send({.kind = Event::Kind::kEnded, .process = number, .good = true});
      return true;
    }
    if (worker.state == State::kWaits || !IsCurrent(worker)) return false;
    if (worker.state == State::kInView) {
      Meet(number, "align");
      worker.state = State::kAligning;
      return true;
    }
    if (worker.state == State::kAligning) return Align(number);
    const int next = worker.number + (worker.state == State::kRuns ? 1 : 0);
    const std::string point = fmt::format("commit{}", next);
    if (worker.state == State::kRuns) {
      worker.commits[next] = fmt::format("{}/{}.{}", worker.commits[next - 1], worker.generation, next);
      if (worker.commits.size() > 2) worker.commits.erase(worker.commits.begin());
      worker.number = next;
      worker.state = State::kSaved;
      Meet(number, point);
      return true;
    }
    if (!Meet(number, point)) return false;
    return Return(number);
  }

  bool Align(int number) {
    if (!Meet(number, "align")) return false;
    const View& view = membership_.view();
    const Worker& first = workers_.at(view.members[0].process);
    const int agreed = std::max<int>(0, static_cast<int>(view.commit));
    const auto state = first.commits.find(agreed);
    Worker& worker = workers_.at(number);
    // Without a commit, all begin with the state of the first rank.
    if (!std::ranges::count(view.synced, RankOf(number))) {
      worker.commits = {{agreed, state == first.commits.end() ? "start" : state->second}};
    }
    worker.number = agreed;
    worker.aligned = worker.generation;
    worker.state = State::kRuns;
    return true;
  }

  bool Return(int number) {
    Worker& worker = workers_.at(number);
    const std::string& text = worker.commits.at(worker.number);
    // One that returns late does not make a newer commit of the others undone.
    // Nobody can know of a commit that returns only after its process was left behind.
    if (!returned_.starts_with(text) && RankOf(number) >= 0) returned_ = text;
    Send({.kind = Event::Kind::kCommitted, .process = number, .generation = worker.generation});
    const bool leaves = decided_.emplace(worker.number, has_news_).first->second;
    if (leaves) {
      SayReady(number);
    } else if (worker.number >= limits_.commits) {
      worker.state = State::kDone;
      Send({.kind = Event::Kind::kDone, .process = number});
    } else {
      worker.state = State::kRuns;
    }
    return true;
  }

  int RankOf(int number) const {
    for (const ViewMember& member : membership_.view().members) {
      if (member.process == number) return member.slot.rank;
    }
    return -1;
  }

  Limits limits_;
  Membership membership_;
  int crashes_, late_;
  std::map<int, Worker> workers_;
  std::map<int, std::deque<Event>> inbox_;  // what the processes have sent
  std::vector<SlotName> armed_, parked_;    // slots for which a timer runs: to start again, to come back
  std::map<int, bool> decided_;             // by commit: whether all leave after it
  std::vector<std::string> entered_;        // collective operations of this view, by member
  std::string returned_;                    // the newest commit that returned anywhere
  std::string wrong_;
  bool is_late_armed_ = false, has_news_ = false;
};

// Explores all states. Returns their number, or 0 after an error.
size_t Explore(const Limits& limits) {
  std::unordered_map<std::string, int> known;
  std::vector<World> open;
  std::vector<std::vector<int>> from;  // by state, those that lead to it
  std::vector<int> ended;
  std::vector<std::pair<World, int>> todo;
  const auto add = [&](World world, int before) {
    const auto [found, is_new] = known.emplace(world.Key(), static_cast<int>(known.size()));
    if (is_new) {
      from.emplace_back();
      if (world.over()) {
        ended.push_back(found->second);
      } else {
        todo.emplace_back(std::move(world), found->second);
      }
    }
    if (before >= 0) from[static_cast<size_t>(found->second)].push_back(before);
  };
  add(World(limits), -1);
  while (!todo.empty()) {
    const auto [world, number] = std::move(todo.back());
    todo.pop_back();
    for (World& next : world.Next()) {
      if (!next.wrong().empty()) {
        ADD_FAILURE() << next.wrong() << "\n" << world.Key() << "\n" << next.Key();
        return 0;
      }
      add(std::move(next), number);
    }
  }
  std::vector<bool> can_end(from.size());
  for (std::vector<int> reached = ended; !reached.empty();) {
    const int state = reached.back();
    reached.pop_back();
    if (can_end[static_cast<size_t>(state)]) continue;
    can_end[static_cast<size_t>(state)] = true;
    for (const int before : from[static_cast<size_t>(state)]) reached.push_back(before);
  }
  for (const auto& [key, number] : known) {
    if (can_end[static_cast<size_t>(number)]) continue;
    ADD_FAILURE() << "this state cannot end: " << key;
    return 0;
  }
  return known.size();
}

// Goes through one random order of events. Returns whether the job ended.
bool Walk(const Limits& limits, std::minstd_rand* random) {
  World world(limits);
  for (int step = 0; step < 2000 && !world.over(); ++step) {
    std::vector<World> next = world.Next();
    if (next.empty()) {
      ADD_FAILURE() << "nothing can follow: " << world.Key();
      return false;
    }
    World chosen = std::move(next[(*random)() % next.size()]);
    if (!chosen.wrong().empty()) {
      ADD_FAILURE() << chosen.wrong() << "\n" << world.Key() << "\n" << chosen.Key();
      return false;
    }
    std::destroy_at(&world);
    std::construct_at(&world, std::move(chosen));
  }
  return world.over();
}

TEST(ElasticModel, KeepsCompleteCommitsAndEndsWhateverTheOrderOfEvents) {
  // A model that reaches fewer states than these has lost transitions.
  EXPECT_GT(Explore({.workers = 2, .crashes = 2, .late = 1, .commits = 1}), 10'000U);
  EXPECT_GT(Explore({.workers = 3, .crashes = 1, .late = 0, .commits = 1}), 10'000U);
}

TEST(ElasticModel, KeepsCompleteCommitsInRandomOrdersOfLargerJobs) {
  std::minstd_rand random(20261119);
  for (int walk = 0; walk < 300; ++walk) {
    ASSERT_TRUE(Walk({.workers = 3, .crashes = 3, .late = 0, .commits = 3}, &random)) << "walk " << walk;
    ASSERT_TRUE(Walk({.workers = 4, .crashes = 4, .late = 2, .commits = 2}, &random)) << "walk " << walk;
  }
}

}  // namespace
}  // namespace hvd::launch::elastic
