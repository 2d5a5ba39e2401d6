// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/program.h"

#include <signal.h>
#include <strings.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "hvd/base/planted_link.h"
#include "hvd/launch/cli/algorithm_table.h"
#include "hvd/launch/cli/check_here.h"
#include "hvd/launch/cli/complaint.h"
#include "hvd/launch/cli/exit_codes.h"
#include "hvd/launch/cli/flags.h"
#include "hvd/launch/cli/parse.h"
#include "hvd/launch/elastic/job.h"
#include "hvd/launch/elastic/settings.h"
#include "hvd/launch/plan/batch_system.h"
#include "hvd/launch/plan/command.h"
#include "hvd/launch/plan/cores.h"
#include "hvd/launch/plan/mpirun.h"
#include "hvd/launch/plan/remote_plan.h"
#include "hvd/launch/plan/this_machine.h"
#include "hvd/launch/remote/agent.h"
#include "hvd/launch/run/arrivals.h"
#include "hvd/launch/run/flight_folder.h"
#include "hvd/launch/run/job.h"
#include "hvd/launch/run/meeting_place.h"
#include "hvd/launch/run/signals.h"
#include "hvd/launch/run/spawn.h"
#include "hvd/net/crypto.h"
#include "hvd/net/fd.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

// A reader that takes nothing for so long is not waited for at the end.
constexpr Duration kLastWords = std::chrono::seconds(30);

// Why nothing was started; as JSON, too, for those who asked for that.
int Refuse(const Options& options, const Error& error, int code) {
  if (options.json) (void)Answer(RefusalJson(error.message, code));
  return Complain(error, code);
}

// What Python knows better: `words` are those of python itself. Returns only if that cannot be started.
int BecomePython(const std::string& self, std::vector<std::string> words, const Environment& environment) {
  auto python = FindPython(self, environment);
  if (!python) return Complain(python.error(), kNoCommand);
  words.insert(words.begin(), *python);
  Become(*python, words, environment.Lines());
  return Complain({Code::kUnknown, fmt::format("{} cannot be executed", *python)}, kCannotRun);
}

int CheckBuild(const std::string& self, const Options& options, const Environment& environment) {
  std::vector<std::string> words{"-m", "horovod.runner.check_build"};
  if (options.json) words.emplace_back("--json");
  return BecomePython(self, std::move(words), environment);
}

int Doctor(const std::string& self, const std::vector<std::string>& arguments, const Environment& environment) {
  std::vector<std::string> words{"-m", "horovod.doctor"};
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  return BecomePython(self, std::move(words), environment);
}

bool UseColor(const Options& options, const Environment& environment, int fd) {
  const std::string when = options.color.value_or("auto");
  if (when != "auto") return when == "always";
  return ::isatty(fd) == 1 && !environment.Get("NO_COLOR") && environment.Get("TERM").value_or("dumb") != "dumb";
}

Result<OutputOptions> MakeOutputOptions(const Options& options, const Environment& environment) {
  OutputOptions output;
  HVD_ASSIGN_OR_RETURN(output.out, MakeLabelStyle(options.prefix, options.prefix_timestamp.value_or(false)));
  output.err = output.out;
  output.out.color = UseColor(options, environment, 1);
  output.err.color = UseColor(options, environment, 2);
  if (options.only_rank) output.only_rank = static_cast<int>(*options.only_rank);
  const int ranks = static_cast<int>(*options.num_proc);
  if (options.output_filename) {
    HVD_ASSIGN_OR_RETURN(output.files, RankFiles::Create(*options.output_filename, ranks));
  } else if (options.log_dir) {
    HVD_ASSIGN_OR_RETURN(output.files, RankFiles::CreateDated(*options.log_dir, ranks));
  }
  return output;
}

int LocalRanks(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.slots, [&](const Slot& slot) {
    return std::ranges::find(plan.remote_hosts, slot.host) == plan.remote_hosts.end();
  }));
}

// After a rank had it in the foreground.
void TakeTerminalBack() {
  ::signal(SIGTTOU, SIG_IGN);
  ::tcsetpgrp(0, ::getpgrp());
}

Result<std::string> NewJobName() {
  std::array<uint8_t, 8> random;
  HVD_RETURN_IF_ERROR(net::RandomBytes(random));
  return net::ToHex(random);
}

void Save(const std::string& path, std::string_view text) {
  // It was checked before the job, and something may have been planted since.
  const auto opened = OpenToWrite(path);
  if (!opened) return (void)Complain(opened.error(), kOwnFailure);
  const net::Fd fd(*opened);
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return (void)Complain({Code::kUnknown, fmt::format("{}: cannot be written: {}", path, net::ErrnoText(errno))},
                            kOwnFailure);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

int Finish(const Options& options, const Report& report, Sink* out, Sink* err) {
  const std::string json = ReportJson(report);
  if (options.report_file) Save(*options.report_file, json);
  if (report.exit_code != 0 && !report.logs.empty()) Save(report.logs + "/failure.json", json);
  (void)out->Flush(kLastWords);
  err->Write(ReportText(report));
  (void)err->Flush(kLastWords);
  if (options.json) out->Write(json);
  (void)out->Flush(kLastWords);
  if (const uint64_t dropped = out->dropped() + err->dropped(); dropped > 0) {
    err->Write(fmt::format(
        "horovodrun: {} lines of the ranks' output were dropped in all, because its reader is too slow; {}\n", dropped,
        report.logs.empty() ? "--log-dir DIR keeps every line" : "the files in " + report.logs + " have every line"));
    (void)err->Flush(kLastWords);
  }
  if (out->failure() == 0) return report.exit_code;
  err->Write(
      fmt::format("horovodrun: stdout: {}; what was to be printed there is lost\n", net::ErrnoText(out->failure())));
  (void)err->Flush(kLastWords);
  return report.exit_code == 0 ? kOwnFailure : report.exit_code;
}

Result<Report> RunElastic(const Options& options, const Plan& plan, const Environment& environment,
                          const Job::Settings& settings, const elastic::ElasticJob::Parts& parts) {
  HVD_ASSIGN_OR_RETURN(auto planned, elastic::PlanElastic(options, plan, environment, ReadFile, IsThisMachine));
  planned.job = settings;
  elastic::ElasticJob job(std::move(planned), plan, parts);
  HVD_RETURN_IF_ERROR(job.Run());
  return job.MakeReport();
}

int RunJob(const std::string& self, const Options& options, const Plan& plan, OutputOptions output_options,
           const Environment& environment) {
  Job::Settings settings;
  settings.grace_s = options.grace_period.value_or(5);
  settings.inherited.files = RaiseFileLimit();
  settings.inherited.mask = BlockSignals();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto trust = MakeTrust(options, plan, environment);
  if (!trust) return Refuse(options, trust.error(), CodeFor(trust.error()));
  auto name = NewJobName();
  if (!name) return Refuse(options, name.error(), kOwnFailure);
  const auto outer = environment.Get(kJobVariable);
  const std::string job_name = outer ? *outer + "/" + *name : *name;
  FlightFolder flight(output_options.files ? output_options.files->folder() : "", environment);
  auto warden = Warden::Start(*name, trust->folder ? trust->folder->path() : "", -1, flight.temporary());
  if (!warden) return Refuse(options, warden.error(), kOwnFailure);
  auto loop = loop::CreateEpollLoop();
  if (!loop) return Refuse(options, loop.error(), kOwnFailure);
  Sink err(2);
  Sink out(1, Sink::kMostBytes, [&err] {
    err.Write("horovodrun: nobody reads stdout any more: the job goes on, and what ranks print there is lost\n");
  });
  for (const std::string& note : options.notes) err.Write(fmt::format("horovodrun: note: {}\n", note));
  if (!plan.note.empty()) err.Write(fmt::format("horovodrun: note: {}\n", plan.note));
  if (::strcasecmp(plan.environment.Get("HOROVOD_CPU_OPERATIONS").value_or("").c_str(), "mpi") == 0) {
    err.Write("horovodrun: note: HOROVOD_CPU_OPERATIONS=mpi has no effect without --mpi: MPI must start the ranks\n");
  }
  for (const std::string& note : NotesFor(plan.environment, options)) {
    err.Write(fmt::format("horovodrun: note: {}\n", note));
  }
  // On a terminal people see how it begins; into files and pipes goes what ranks print alone, unless asked.
  const bool talkative = options.verbose || ::isatty(2) == 1;
  if (talkative) settings.says = [&](const std::string& line) { err.Write(fmt::format("horovodrun: {}\n", line)); };
  if (const std::string share = DescribeShare(LocalRanks(plan), plan.environment); talkative && !share.empty()) {
    err.Write(fmt::format("horovodrun: note: {}\n", share));
  }
  settings.warns = [&](const std::string& line) { err.Write(fmt::format("horovodrun: {}\n", line)); };
  Arrivals arrivals([turning = loop->get()] { turning->Wake(); });
  elastic::Mailbox mail(loop->get());
  MeetingPlace place([&arrivals] { arrivals.OnAll(); },
                     [&, is_elastic = options.elastic()](const std::string& key, const std::string& value) {
                       is_elastic ? mail.Put(key, value) : arrivals.OnSet(key);
                     });
  settings.open_place = [&](const std::string& address) -> Result<RankPlace> {
    HVD_RETURN_IF_ERROR(place.Open(address, trust->token));
    RankPlace where{place.address(), job_name, trust->folder ? trust->folder->token_file() : ""};
    where.flight = flight.path();
    if (options.debug_rank) where.debugged = static_cast<int>(*options.debug_rank);
    return where;
  };
  // People who debug a rank take their time.
  if (!options.debug_rank) settings.arrivals = &arrivals;
  settings.interrupted = [&flight] { flight.KeepWhatIsThere(); };
  settings.tell_who_left = [&place](const std::string& ranks) { place.TellWhoLeft(ranks); };
  Output output(std::move(output_options), static_cast<int>(plan.slots.size()), &out, &err);
  if (options.elastic()) {
    auto report = RunElastic(options, plan, environment, settings, {&*warden, &output, &place, &mail, loop->get()});
    if (!report) return Refuse(options, report.error(), CodeFor(report.error()));
    report->flight = flight.Keep(report->exit_code != 0);
    return Finish(options, *report, &out, &err);
  }
  std::optional<RemoteHosts> remote;
  if (!plan.remote_hosts.empty()) {
    auto made = PlanRemote(self, options, plan, *trust->token, environment);
    if (!made) return Refuse(options, made.error(), CodeFor(made.error()));
    made->talkative = talkative;
    made->on_open = [&](const std::vector<std::string>& addresses) {
      if (options.no_ssh) err.Write(HowToStartAgents(plan, addresses, *trust));
    };
    remote.emplace(*made, settings.inherited, loop->get());
  }
  Job job(settings, plan, &*warden, &output, remote ? &*remote : nullptr, loop->get());
  const Status ran = job.Run();
  if (options.verbose) err.Write(fmt::format("horovodrun: all ranks ended, {:.3f} s\n", job.MakeReport().elapsed_s));
  if (!ran) {
    err.Write(fmt::format("horovodrun: {}\n", ran.error().message));
    (void)err.Flush(kLastWords);
    return kOwnFailure;
  }
  if (options.debug_rank) TakeTerminalBack();
  Report report = job.MakeReport();
  report.flight = flight.Keep(report.diagnosis.cause >= 0 || report.host_failure);
  return Finish(options, report, &out, &err);
}

void RemoveTaskFolder(const std::string& path) {
  const std::filesystem::path folder(path);
  std::error_code error;
  if (folder.filename().string().starts_with("horovod-run-")) std::filesystem::remove_all(folder, error);
}

}  // namespace

int RunProgram(const std::string& self, const std::vector<std::string>& arguments, const Environment& environment) {
  if (!arguments.empty() && arguments[0] == "doctor") return Doctor(self, arguments, environment);
  if (!arguments.empty() && arguments[0] == "agent") {
    return RunAgent(self, {arguments.begin() + 1, arguments.end()}, environment);
  }
  auto options = Parse(arguments, ReadFile);
  if (!options) return Complain(options.error(), kUsage);
  if (options->help) return Answer(options->json ? FlagsJson() : HelpText());
  if (options->version) return Answer(HVD_VERSION "\n");
  if (options->check_build) return CheckBuild(self, *options, environment);
  const auto taken = TakeBatchHosts(environment, ReadFile, IsThisMachine, &*options);
  if (!taken) return Refuse(*options, taken.error(), kUsage);
  if (!taken->empty()) Note(*taken);
  if (options->algorithms) {
    const auto table = AlgorithmTable(*options, environment, ReadFile);
    return table ? Answer(*table) : Refuse(*options, table.error(), kUsage);
  }
  const pid_t parent = ::getppid();
  if (options->die_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (const Status good = CheckHere(*options); !good) return Refuse(*options, good.error(), kUsage);
  if (UsesMpirun(*options)) return RunMpirun(self, *options, environment);
  auto plan = MakePlan(*options, environment, self, ReadFile);
  if (!plan) return Refuse(*options, plan.error(), CodeFor(plan.error()));
  if (options->dry_run) return Answer(options->json ? DescribeAsJson(*plan) : Describe(*plan));
  auto output = MakeOutputOptions(*options, environment);
  if (!output) return Refuse(*options, output.error(), kUsage);
  const int code = RunJob(self, *options, *plan, std::move(*output), environment);
  // horovod.run removes it, unless it was killed.
  if (options->task_folder && ::getppid() != parent) RemoveTaskFolder(*options->task_folder);
  return code;
}

}  // namespace hvd::launch
