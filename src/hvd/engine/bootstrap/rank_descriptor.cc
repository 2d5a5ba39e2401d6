// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/rank_descriptor.h"

#include <charconv>
#include <vector>

#include "hvd/base/utf8.h"

namespace hvd::engine::bootstrap {
namespace {

constexpr size_t kFields = 18;

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

template <typename Number>
bool Parse(std::string_view text, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (;;) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos || lines.size() > kFields) return lines;
    text = text.substr(end + 1);
  }
}

std::string_view TrustOf(const RankDescriptor& card) {
  if (card.trust == "none") return "has no job token (no HOROVOD_TOKEN_FILE)";
  if (card.trust == "insecure") return "has no job token (no HOROVOD_TOKEN_FILE) and HOROVOD_INSECURE=1";
  return "has a job token";
}

}  // namespace

std::string Encode(const RankDescriptor& card) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", OneLine(card.version),
                     OneLine(card.nonce), card.size, OneLine(card.process.machine), card.process.pid,
                     card.process.start_time, OneLine(card.host_id), OneLine(card.hostname), OneLine(card.no_shm),
                     OneLine(card.process_sets), OneLine(card.trust), card.encrypt ? 1 : 0, card.settings.eager_bytes,
                     card.settings.chunk_bytes, card.settings.fusion_threshold, card.settings.cache_capacity,
                     OneLine(card.settings.algorithms), card.waited_ms);
}

Result<RankDescriptor> DecodeRankDescriptor(std::string_view text) {
  const std::vector<std::string_view> fields = Lines(text);
  RankDescriptor card;
  card.version = fields[0];
  if (fields.size() >= 2 && card.version != HVD_VERSION) {
    card.nonce = fields[1];
    return card;
  }
  if (fields.size() != kFields) return Fail(Code::kInvalidArgument, "a rank's card has no {} fields", kFields);
  card.nonce = fields[1];
  card.process.machine = fields[3];
  card.host_id = fields[6];
  card.hostname = fields[7];
  card.no_shm = fields[8];
  card.process_sets = fields[9];
  card.trust = fields[10];
  card.settings.algorithms = fields[16];
  int encrypt = 0;
  const bool good = Parse(fields[2], &card.size) && Parse(fields[4], &card.process.pid) &&
                    Parse(fields[5], &card.process.start_time) && Parse(fields[11], &encrypt) &&
                    Parse(fields[12], &card.settings.eager_bytes) && Parse(fields[13], &card.settings.chunk_bytes) &&
                    Parse(fields[14], &card.settings.fusion_threshold) &&
                    Parse(fields[15], &card.settings.cache_capacity) && Parse(fields[17], &card.waited_ms);
  if (!good || card.size < 1 || card.process.pid <= 0 || card.settings.eager_bytes < 0 ||
      card.settings.chunk_bytes < 64) {
    return Fail(Code::kInvalidArgument, "a rank's card has a field that is no number");
  }
  card.encrypt = encrypt != 0;
  return card;
}

std::string NameOf(Rank rank, const RankDescriptor& card) {
  if (card.process.pid == 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (pid {} on {})", rank, card.process.pid, card.hostname);
}

Status Compare(Rank a_rank, const RankDescriptor& a, Rank b_rank, const RankDescriptor& b) {
  const std::string a_name = NameOf(a_rank, a);
  const std::string b_name = NameOf(b_rank, b);
  const auto differ = [b_rank]<typename... Args>(Code code, fmt::format_string<Args...> text, Args&&... args) {
    return Fail({code, fmt::format(text, std::forward<Args>(args)...), b_rank});
  };
  if (a.version != b.version) {
    return differ(Code::kFailedPrecondition,
                  "versions differ: {} runs hvd {}, {} runs {}; install one version everywhere", a_name, a.version,
                  b_name, b.version);
  }
  if (a.size != b.size) {
    return differ(Code::kInvalidArgument, "HOROVOD_SIZE differs: {} on {}, {} on {}; give every rank the same", a.size,
                  a_name, b.size, b_name);
  }
  if (a.process_sets != b.process_sets) {
    return differ(Code::kInvalidArgument,
                  "process sets differ: {} was given {}, {} was given {}; give every rank the same list", a_name,
                  a.process_sets, b_name, b.process_sets);
  }
  if (a.trust != b.trust) {
    if (TrustOf(a) == TrustOf(b)) {
      return differ(
          Code::kPermissionDenied,
          "job tokens differ: {} and {} were given different ones; HOROVOD_TOKEN_FILE must hold the same token "
          "on every rank",
          a_name, b_name);
    }
    return differ(Code::kPermissionDenied,
                  "job tokens differ: {} {}, {} {}; set HOROVOD_TOKEN_FILE and HOROVOD_INSECURE alike on every rank",
                  a_name, TrustOf(a), b_name, TrustOf(b));
  }
  if (a.encrypt != b.encrypt) {
    return differ(Code::kInvalidArgument, "HOROVOD_ENCRYPT differs: {:d} on {}, {:d} on {}; give every rank the same",
                  a.encrypt, a_name, b.encrypt, b_name);
  }
  if (a.settings.algorithms != b.settings.algorithms) {
    const auto shown = [](const RankDescriptor& card) {
      return card.settings.algorithms.empty() ? "unset" : fmt::format("\"{}\"", Cut(card.settings.algorithms, 500));
    };
    return differ(Code::kInvalidArgument, "HOROVOD_ALGORITHMS differs: {} on {}, {} on {}; give every rank the same",
                  shown(a), a_name, shown(b), b_name);
  }
  return {};
}

}  // namespace hvd::engine::bootstrap
