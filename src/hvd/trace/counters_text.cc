// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/counters_text.h"

#include <fmt/format.h>

#include <iterator>

#include "hvd/trace/escape.h"

namespace hvd::trace {
namespace {

// To the nanosecond, and never with an exponent, which some readers do not know.
std::string Number(double seconds) { return fmt::format("{:.9f}", seconds); }
std::string Number(uint64_t value) { return fmt::format("{}", value); }

// Of a label in Prometheus' format.
std::string EscapedLabel(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// Metrics of one rank. A metric's lines follow each other, after its HELP and TYPE.
class Exposition {
 public:
  explicit Exposition(Rank rank) : rank_(rank) {}

  Exposition& Metric(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(text_), "# HELP horovod_{0} {2}\n# TYPE horovod_{0} {1}\n", name, type, help);
    return *this;
  }
  // `labels`: further ones, each as `,name="value"`.
  template <typename T>
  Exposition& Value(T value, const std::string& labels = {}) {
    fmt::format_to(std::back_inserter(text_), "horovod_{}{{rank=\"{}\"{}}} {}\n", name_, rank_, labels, Number(value));
    return *this;
  }
  template <typename T>
  Exposition& Counter(std::string_view name, std::string_view help, T value) {
    return Metric(name, "counter", help).Value(value);
  }
  template <typename T>
  Exposition& Gauge(std::string_view name, std::string_view help, T value) {
    return Metric(name, "gauge", help).Value(value);
  }
  std::string Take() { return std::move(text_); }

 private:
  const Rank rank_;
  std::string_view name_;
  std::string text_;
};

void WriteKinds(const CounterSnapshot& snapshot, Exposition& out) {
  const auto metric = [&](std::string_view name, std::string_view help, auto member) {
    out.Metric(name, "counter", help);
    for (const CounterSnapshot::Kind& kind : snapshot.kinds)
      out.Value(kind.*member, fmt::format(",kind=\"{}\"", kind.name));
  };
  using Kind = CounterSnapshot::Kind;
  metric("operations_total", "Operations that succeeded.", &Kind::completed);
  metric("operations_failed_total", "Operations that ended with an error.", &Kind::failed);
  metric("operations_timed_out_total", "Failed operations whose time-out ran out.", &Kind::timed_out);
  metric("operation_bytes_total", "Input bytes of operations that succeeded.", &Kind::bytes);
  metric("operation_wait_seconds_total", "Time from submission until all ranks wanted the operation.", &Kind::wait_s);
  metric("operation_run_seconds_total", "Time from agreement until the result was there.", &Kind::run_s);
}

void WritePeers(const CounterSnapshot& snapshot, Exposition& out) {
  out.Metric("peer_last_total", "counter", "Operations for which this peer was the last to come.");
  for (const auto& peer : snapshot.peers) out.Value(peer.last, fmt::format(",peer=\"{}\"", peer.rank));
  out.Metric("peer_wait_seconds_total", "counter", "Waiting time of the operations for which this peer was the last.");
  for (const auto& peer : snapshot.peers) out.Value(peer.wait_s, fmt::format(",peer=\"{}\"", peer.rank));
  const auto bytes = [&](std::string_view name, std::string_view help, auto member) {
    out.Metric(name, "counter", help);
    for (const auto& peer : snapshot.peers) {
      for (const auto& transport : peer.transports) {
        out.Value(transport.*member, fmt::format(",peer=\"{}\",transport=\"{}\"", peer.rank, transport.transport));
      }
    }
  };
  bytes("peer_sent_bytes_total", "Bytes that went to this peer.", &CounterSnapshot::TransportBytes::sent);
  bytes("peer_received_bytes_total", "Bytes that came from this peer.", &CounterSnapshot::TransportBytes::received);
}

template <typename Items, typename Write>
std::string JsonObject(const Items& items, Write write) {
  std::string out = "{";
  for (const auto& item : items) {
    if (out.size() > 1) out += ",";
    out += write(item);
  }
  return out + "}";
}

std::string JsonPeer(const CounterSnapshot::Peer& peer) {
  const auto bytes = [&](auto member) {
    return JsonObject(peer.transports, [&](const auto& transport) {
      return fmt::format(R"("{}":{})", transport.transport, transport.*member);
    });
  };
  return fmt::format(R"("{}":{{"last":{},"wait_seconds":{},"sent_bytes":{},"received_bytes":{}}})", peer.rank,
                     peer.last, Number(peer.wait_s), bytes(&CounterSnapshot::TransportBytes::sent),
                     bytes(&CounterSnapshot::TransportBytes::received));
}

}  // namespace

CounterSnapshot Read(const Counters& counters, const TickScale& ticks) {
  const TickScale::Pair now = ticks.Read();
  CounterSnapshot snapshot;
  snapshot.uptime_s = ticks.SecondsSinceFirst(now);
  for (size_t i = 0; i < kCountedKinds.size(); ++i) {
    const Counters::Kind& kind = counters.kinds[i];
    snapshot.kinds.push_back({.name = kCountedKinds[i],
                              .completed = kind.completed.load(),
                              .failed = kind.failed.load(),
                              .timed_out = kind.timed_out.load(),
                              .bytes = kind.bytes.load(),
                              .wait_s = ticks.ToSeconds(kind.wait.load(), now),
                              .run_s = ticks.ToSeconds(kind.run.load(), now)});
  }
  for (size_t rank = 0; rank < counters.peers.size(); ++rank) {
    const Counters::Peer& peer = counters.peers[rank];
    snapshot.peers.push_back({.rank = static_cast<Rank>(rank),
                              .last = peer.last.load(),
                              .wait_s = ticks.ToSeconds(peer.wait.load(), now),
                              .transports = {}});
  }
  snapshot.cache_hits = counters.cache_hits.load();
  snapshot.cache_misses = counters.requests.load();
  snapshot.fusion_batches = counters.fusion_batches.load();
  snapshot.fusion_tensors = counters.fusion_tensors.load();
  snapshot.fusion_bytes = counters.fusion_bytes.load();
  snapshot.chunk_percent = counters.in_force.chunk_percent.load();
  snapshot.chunk_bytes = counters.in_force.chunk_bytes.load();
  snapshot.eager_bytes = counters.in_force.eager_bytes.load();
  snapshot.spin_us = counters.in_force.spin_us.load();
  snapshot.stalls = counters.stalls.load();
  snapshot.sleeps = counters.sleeps.load();
  return snapshot;
}

std::string ToJson(const CounterSnapshot& r) {
  std::string out = fmt::format(
      R"({{"rank":{},"size":{},"generation":{},"host":"{}","version":"{}","uptime_seconds":{},"operations":)", r.rank,
      r.size, r.generation, Escaped(r.host), Escaped(r.version), Number(r.uptime_s));
  out += JsonObject(r.kinds, [](const CounterSnapshot::Kind& kind) {
    return fmt::format(
        R"("{}":{{"completed":{},"failed":{},"timed_out":{},"bytes":{},"wait_seconds":{},"run_seconds":{}}})",
        kind.name, kind.completed, kind.failed, kind.timed_out, kind.bytes, Number(kind.wait_s), Number(kind.run_s));
  });
  out += R"(,"peers":)" + JsonObject(r.peers, JsonPeer);
  fmt::format_to(std::back_inserter(out), R"(,"cache":{{"hits":{},"misses":{}}})", r.cache_hits, r.cache_misses);
  fmt::format_to(std::back_inserter(out), R"(,"fusion":{{"batches":{},"tensors":{},"bytes":{},"threshold_bytes":{}}})",
                 r.fusion_batches, r.fusion_tensors, r.fusion_bytes, r.fusion_threshold);
  fmt::format_to(std::back_inserter(out),
                 R"(,"tuning":{{"chunk_percent":{},"chunk_bytes":{},"eager_limit_bytes":{},"spin_us":{}}})",
                 r.chunk_percent, r.chunk_bytes, r.eager_bytes, r.spin_us);
  fmt::format_to(std::back_inserter(out), R"(,"stalls":{},"sleeps":{}}})", r.stalls, r.sleeps);
  return out;
}

std::string ToPrometheus(const CounterSnapshot& r) {
  Exposition out(r.rank);
  out.Metric("info", "gauge", "Always 1; the labels say who this is.")
      .Value(uint64_t{1}, fmt::format(",size=\"{}\",host=\"{}\",version=\"{}\"", r.size, EscapedLabel(r.host),
                                      EscapedLabel(r.version)));
  out.Gauge("generation", "Number of this init: what counts began with it.", static_cast<uint64_t>(r.generation));
  out.Gauge("uptime_seconds", "Time since init.", r.uptime_s);
  WriteKinds(r, out);
  WritePeers(r, out);
  out.Counter("cache_hits_total", "Operations that were agreed on without a request.", r.cache_hits);
  out.Counter("cache_misses_total", "Requests that described an operation in full.", r.cache_misses);
  out.Counter("fusion_batches_total", "Times that several operations ran as one.", r.fusion_batches);
  out.Counter("fusion_tensors_total", "Operations that ran in batches.", r.fusion_tensors);
  out.Counter("fusion_bytes_total", "Input bytes of operations that ran in batches.", r.fusion_bytes);
  out.Gauge("fusion_threshold_bytes", "Most bytes of one batch.", r.fusion_threshold);
  out.Gauge("chunk_percent", "Chunks and slices, in percent of those at the start.", r.chunk_percent);
  out.Gauge("chunk_bytes", "Size of a chunk that is staged in shared memory.", r.chunk_bytes);
  out.Gauge("eager_limit_bytes", "Most bytes of data beside the mark of its operation.", r.eager_bytes);
  out.Gauge("spin_seconds", "How long a rank that waits looks before it sleeps.",
            static_cast<double>(r.spin_us) * 1e-6);
  out.Counter("stalls_total", "Stall warnings.", r.stalls);
  out.Counter("sleeps_total", "Times that the engine went to sleep.", r.sleeps);
  return out.Take();
}

}  // namespace hvd::trace
