// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>

#include <nlohmann/json.hpp>

#include "hvd/launch/report/report.h"

namespace hvd::launch {
namespace {

using Json = nlohmann::ordered_json;

Json OfRank(const RankReport& rank) {
  Json json{{"rank", rank.slot.rank}, {"host", rank.slot.host}, {"pid", rank.pid}};
  if (rank.ending.signal != 0) {
    json["signal"] = rank.ending.signal;
    json["signal_name"] = SignalName(rank.ending.signal);
  } else if (rank.ending.code) {
    json["exit_code"] = *rank.ending.code;
  }
  if (!rank.ending.exec_error.empty()) json["exec_error"] = rank.ending.exec_error;
  if (!rank.ending.lost.empty()) json["host_lost"] = rank.ending.lost;
  json["ended_by_horovodrun"] = rank.ending.told;
  json["ended_after_s"] = rank.ended_after_s;
  return json;
}

// Everything from the last "Traceback" on, as one text.
std::string Traceback(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (line.starts_with("Traceback (most recent call last)")) text.clear();
    if (!text.empty() || line.starts_with("Traceback (most recent call last)")) text += line + "\n";
  }
  return text;
}

// Bytes that are no UTF-8 are replaced: JSON has none.
std::string Line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string RefusalJson(const std::string& why, int exit_code) {
  return Line({{"status", "failed"}, {"exit_code", exit_code}, {"error", why}});
}

std::string ReportJson(const Report& report) {
  const bool failed = report.diagnosis.cause >= 0;
  Json json;
  json["status"] = failed || !report.why.empty() || report.host_failure ? "failed"
                   : report.interrupted_by != 0                         ? "interrupted"
                                                                        : "ok";
  json["exit_code"] = report.exit_code;
  json["ranks"] = report.ranks.size();
  json["elapsed_s"] = report.elapsed_s;
  if (report.elastic) {
    json["elastic"] = {{"views", report.elastic->views},
                       {"recoveries", report.elastic->recoveries},
                       {"rollbacks", report.elastic->rollbacks},
                       {"lost_s", report.elastic->lost_s}};
    if (!report.why.empty()) json["elastic"]["why"] = report.why;
  }
  if (report.interrupted_by != 0) json["interrupted_by"] = SignalName(report.interrupted_by);
  if (report.host_failure) {
    json["host"] = report.host_failure->host;
    json["host_failure"] = report.host_failure->what;
    json["suggestion"] = report.host_failure->suggestion;
  }
  if (failed) {
    const RankReport& cause = report.ranks[report.diagnosis.cause];
    const auto when = report.started_at + static_cast<std::time_t>(cause.ended_after_s);
    Json first = OfRank(cause);
    first["when"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(when));
    first["silent"] = report.diagnosis.silent;
    first["stderr"] = cause.last_lines;
    if (const std::string traceback = Traceback(cause.last_lines); !traceback.empty()) first["traceback"] = traceback;
    json["first"] = first;
    json["alike"] = report.diagnosis.alike;
    json["collateral"] = Json::array();
    for (const int rank : report.diagnosis.collateral) json["collateral"].push_back(OfRank(report.ranks[rank]));
    json["suggestion"] = Suggestion(report);
  }
  if (!report.logs.empty()) json["logs"] = report.logs;
  if (!report.flight.empty()) json["flight"] = report.flight;
  return Line(json);
}

}  // namespace hvd::launch
