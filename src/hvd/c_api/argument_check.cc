// SPDX-License-Identifier: Apache-2.0
#include "hvd/c_api/argument_check.h"

#include <string>

#include "hvd/base/types.h"
#include "hvd/engine/engine.h"

namespace hvd::c_api {
namespace {

// `first`: the struct's size in the first release that had it; `here`: in this one. A larger one comes with a newer
// header, whose fields this library would ignore.
Status CheckSize(std::string_view name, size_t given, size_t first, size_t here) {
  if (given >= first && given <= here) return {};
  return Fail(Code::kInvalidArgument, "{}.struct_size is {}, this library ({}) knows {}{}: {}", name, given,
              HVD_VERSION, first == here ? "" : fmt::format("{} to ", first), here,
              given > here ? "the caller was compiled against a newer hvd.h" : "set it to sizeof, see hvd.h");
}

struct Utf8Head {
  int more;             // bytes that follow
  unsigned char least;  // of the first that follows: below it the form is overlong, a surrogate or beyond Unicode
  unsigned char most;
};

// More is -1 for a byte that can begin nothing.
Utf8Head ReadHead(unsigned char byte) {
  if (byte < 0x80) return {0, 0, 0};
  if (byte < 0xC2 || byte > 0xF4) return {-1, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte < 0xF0) {
    const unsigned char least = byte == 0xE0 ? 0xA0 : 0x80;
    const unsigned char most = byte == 0xED ? 0x9F : 0xBF;
    return {2, least, most};
  }
  const unsigned char least = byte == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = byte == 0xF4 ? 0x8F : 0xBF;
  return {3, least, most};
}

// Offset of the first byte that is not UTF-8; npos if all is.
size_t FindNotUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Head head = ReadHead(static_cast<unsigned char>(text[i]));
    if (head.more < 0 || i + static_cast<size_t>(head.more) >= text.size()) return i;
    for (int k = 1; k <= head.more; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + static_cast<size_t>(k)]);
      if (byte < (k == 1 ? head.least : 0x80) || byte > (k == 1 ? head.most : 0xBF)) return i;
    }
    i += static_cast<size_t>(head.more) + 1;
  }
  return std::string_view::npos;
}

Status CheckText(std::string_view field, std::string_view text) {
  if (text.size() > wire::kMaxNameBytes) {
    return Fail(Code::kInvalidArgument, "{} has {} bytes, at most {} are possible", field, text.size(),
                wire::kMaxNameBytes);
  }
  if (const size_t at = FindNotUtf8(text); at != std::string_view::npos) {
    return Fail(Code::kInvalidArgument, "{} is not UTF-8: byte 0x{:02x} at offset {} of {}", field,
                static_cast<unsigned char>(text[at]), at, text.size());
  }
  return {};
}

Status CheckName(const hvd_request& request) {
  if (request.prepared != 0 || request.op == HVD_JOIN) return {};
  if (request.name == nullptr || *request.name == '\0') {
    return Fail(Code::kInvalidArgument,
                "hvd_request.name is {}: the operation needs a name that is equal on all ranks, or `prepared`",
                request.name == nullptr ? "NULL" : "empty");
  }
  return CheckText("hvd_request.name", request.name);
}

Status CheckBuffer(std::string_view field, const hvd_buffer& buffer) {
  if (buffer.device_type == HVD_CPU) return {};
  if (buffer.device_type == HVD_CUDA) {
    return Fail(Code::kUnimplemented, "hvd_request.{}.device_type is HVD_CUDA: only CPU memory can be used for now",
                field);
  }
  return Fail(Code::kInvalidArgument, "hvd_request.{}.device_type is {}, which is no kind of memory", field,
              buffer.device_type);
}

Status CheckShape(const hvd_request& request) {
  if (request.ndim < 0 || request.ndim > static_cast<int32_t>(wire::kMaxDims)) {
    return Fail(Code::kInvalidArgument, "hvd_request.ndim is {}: 0 to {} dimensions are possible", request.ndim,
                wire::kMaxDims);
  }
  if (request.ndim > 0 && request.shape == nullptr) {
    return Fail(Code::kInvalidArgument, "hvd_request.shape is NULL, but ndim is {}", request.ndim);
  }
  return {};
}

Status CheckNumber(std::string_view field, int32_t value, int32_t most) {
  if (value >= 0 && value <= most) return {};
  return Fail(Code::kInvalidArgument, "hvd_request.{} is {}: 0 to {} are known, see hvd.h", field, value, most);
}

Status CheckFlags(const hvd_request& request) {
  constexpr int32_t kBoth = HVD_WIRE_FLOAT16 | HVD_WIRE_BFLOAT16;
  if (request.flags == 0) return {};
  if ((request.flags & ~kBoth) != 0) {
    return Fail(Code::kInvalidArgument, "hvd_request.flags is {:#x}: {:#x} is not known", request.flags,
                request.flags & ~kBoth);
  }
  if (request.flags == kBoth) {
    return Fail(Code::kInvalidArgument, "hvd_request.flags has HVD_WIRE_FLOAT16 and HVD_WIRE_BFLOAT16: give one");
  }
  const std::string_view flag = request.flags == HVD_WIRE_FLOAT16 ? "HVD_WIRE_FLOAT16" : "HVD_WIRE_BFLOAT16";
  if (request.op != HVD_ALLREDUCE) {
    return Fail(Code::kInvalidArgument, "hvd_request.flags has {}, which is for allreduce alone, but op is {}", flag,
                NameOf(static_cast<OpKind>(request.op)));
  }
  if (request.reduce_op == HVD_ADASUM) {
    return Fail(Code::kInvalidArgument, "hvd_request.flags has {}, which Adasum cannot use: give elements of that type",
                flag);
  }
  return {};
}

}  // namespace

Status CheckSeconds(std::string_view field, double seconds) {
  if (seconds >= 0) return {};
  return Fail(Code::kInvalidArgument, "{} is {:g}: give seconds, not negative", field, seconds);
}

Status Check(const hvd_request* request) {
  if (request == nullptr) return Fail(Code::kInvalidArgument, "the request is NULL");
  HVD_RETURN_IF_ERROR(CheckSize("hvd_request", request->struct_size, sizeof *request, sizeof *request));
  HVD_RETURN_IF_ERROR(CheckName(*request));
  HVD_RETURN_IF_ERROR(CheckNumber("op", request->op, HVD_JOIN));
  HVD_RETURN_IF_ERROR(CheckNumber("dtype", request->dtype, HVD_BFLOAT16));
  HVD_RETURN_IF_ERROR(CheckNumber("reduce_op", request->reduce_op, HVD_PRODUCT));
  HVD_RETURN_IF_ERROR(CheckShape(*request));
  HVD_RETURN_IF_ERROR(CheckBuffer("input", request->input));
  HVD_RETURN_IF_ERROR(CheckBuffer("output", request->output));
  HVD_RETURN_IF_ERROR(CheckSeconds("hvd_request.timeout_s", request->timeout_s));
  if (request->stream != nullptr || request->ready_event != nullptr) {
    return Fail(Code::kInvalidArgument, "hvd_request.{} is set, but the input is CPU memory, which has none",
                request->stream != nullptr ? "stream" : "ready_event");
  }
  if (request->op != HVD_ALLTOALL && (request->nsplits != 0 || request->splits != nullptr)) {
    return Fail(Code::kInvalidArgument, "hvd_request.nsplits is {}: only alltoall has splits", request->nsplits);
  }
  if (request->nsplits < 0 || (request->nsplits > 0) != (request->splits != nullptr)) {
    return Fail(Code::kInvalidArgument, "hvd_request.nsplits is {}, but splits is {}", request->nsplits,
                request->splits == nullptr ? "NULL" : "given");
  }
  for (int32_t i = 0; i < request->nsplits; ++i) {
    if (request->splits[i] < 0) {
      return Fail(Code::kInvalidArgument, "hvd_request.splits[{}] is {}: give rows, not negative", i,
                  request->splits[i]);
    }
  }
  return CheckFlags(*request);
}

Status Check(const hvd_init_options& options) {
  HVD_RETURN_IF_ERROR(CheckSize("hvd_init_options", options.struct_size, sizeof options, sizeof options));
  const auto check = [](std::string_view field, int32_t value) -> Status {
    if (value >= -1) return {};
    return Fail(Code::kInvalidArgument, "hvd_init_options.{} is {}: give it, or -1 for the environment's", field,
                value);
  };
  HVD_RETURN_IF_ERROR(check("rank", options.rank));
  HVD_RETURN_IF_ERROR(check("size", options.size));
  HVD_RETURN_IF_ERROR(check("generation", options.generation));
  if (options.host_id != nullptr) HVD_RETURN_IF_ERROR(CheckText("hvd_init_options.host_id", options.host_id));
  HVD_RETURN_IF_ERROR(CheckSeconds("hvd_init_options.timeout_s", options.timeout_s));
  const bool without_lists = options.process_set_sizes == nullptr || options.process_set_ranks == nullptr;
  if (options.process_set_count < 0 || (options.process_set_count > 0 && without_lists)) {
    return Fail(Code::kInvalidArgument,
                "hvd_init_options.process_set_count is {}: give a number of sets, and their sizes and ranks",
                options.process_set_count);
  }
  const int32_t least = (options.flags & HVD_INIT_SURVIVING_PROCESS_SETS) != 0 ? 0 : 1;
  for (int32_t i = 0; i < options.process_set_count; ++i) {
    if (options.process_set_sizes[i] < least) {
      return Fail(Code::kInvalidArgument, "process set {} has {} ranks: give at least one", i + 1,
                  options.process_set_sizes[i]);
    }
  }
  constexpr int32_t kFlags = HVD_INIT_NO_SIGNAL_HANDLERS | HVD_INIT_DYNAMIC_PROCESS_SETS | HVD_INIT_HANDLERS_ARE_FATAL |
                             HVD_INIT_SURVIVING_PROCESS_SETS;
  if (options.comm_rank_count < 0 || (options.comm_rank_count > 0 && options.comm_ranks == nullptr)) {
    return Fail(Code::kInvalidArgument, "hvd_init_options.comm_rank_count is {}: give a number of ranks, and the ranks",
                options.comm_rank_count);
  }
  if (options.comm_rank_count > 0 && options.mpi_comm != nullptr) {
    return Fail(Code::kInvalidArgument, "hvd_init_options has mpi_comm and comm_ranks: give one of them");
  }
  if ((options.flags & ~kFlags) != 0) {
    return Fail(Code::kInvalidArgument, "hvd_init_options.flags is {:#x}: {:#x} is not known", options.flags,
                options.flags & ~kFlags);
  }
  return {};
}

Status Check(const hvd_output& output) {
  return CheckSize("hvd_output", output.struct_size, sizeof output, sizeof output);
}

Status Check(const hvd_counters& counters) {
  return CheckSize("hvd_counters", counters.struct_size, sizeof counters, sizeof counters);
}

}  // namespace hvd::c_api
