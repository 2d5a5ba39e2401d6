// SPDX-License-Identifier: Apache-2.0
#include "hvd/pmi/pmix.h"

#include <dlfcn.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "hvd/base/at_exit.h"

namespace hvd::pmi {
namespace {

// The part of PMIx's ABI that is used here; it is the same since version 2.
struct Process {
  char space[256];
  uint32_t rank;
};
struct Value {
  uint16_t type;
  union {
    char* text;
    char room[48];  // the largest member has 24 bytes
  };
};
constexpr uint16_t kString = 3;
constexpr uint8_t kGlobal = 3;

struct Functions {
  int (*init)(Process*, void*, size_t) = nullptr;
  int (*finalize)(const void*, size_t) = nullptr;
  int (*put)(uint8_t, const char*, Value*) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Process*, size_t, const void*, size_t) = nullptr;
  int (*get)(const Process*, const char*, const void*, size_t, Value**) = nullptr;
  const char* (*error)(int) = nullptr;
};

Result<Functions> Open() {
  void* library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) return Fail(Code::kNotFound, "{}", dlerror());
  Functions functions;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    return *function != nullptr;
  };
  if (find("PMIx_Init", &functions.init) && find("PMIx_Finalize", &functions.finalize) &&
      find("PMIx_Put", &functions.put) && find("PMIx_Commit", &functions.commit) &&
      find("PMIx_Fence", &functions.fence) && find("PMIx_Get", &functions.get) &&
      find("PMIx_Error_string", &functions.error)) {
    return functions;
  }
  return Fail(Code::kNotFound, "libpmix.so.2 lacks calls of PMIx");
}

Result<std::string> Share(int rank, const std::string& key, std::string text) {
  HVD_ASSIGN_OR_RETURN(const Functions pmix, Open());
  const auto check = [&](const char* what, int code) -> Status {
    if (code == 0) return {};
    return Fail(Code::kUnknown, "PMIx_{}: {}", what, pmix.error(code));
  };
  static std::mutex mutex;
  static Process me;
  static bool begun = false;
  const std::lock_guard lock(mutex);
  if (!begun) {
    HVD_RETURN_IF_ERROR(check("Init", pmix.init(&me, nullptr, 0)));
    begun = true;
    AtExit([pmix](int status) {
      if (status == 0) (void)pmix.finalize(nullptr, 0);
    });
  }
  if (rank == 0) {
    Value value{};
    value.type = kString;
    value.text = text.data();
    HVD_RETURN_IF_ERROR(check("Put", pmix.put(kGlobal, key.c_str(), &value)));
    HVD_RETURN_IF_ERROR(check("Commit", pmix.commit()));
  }
  HVD_RETURN_IF_ERROR(check("Fence", pmix.fence(nullptr, 0, nullptr, 0)));
  if (rank == 0) return text;
  Process first = me;
  first.rank = 0;
  Value* got = nullptr;
  HVD_RETURN_IF_ERROR(check("Get", pmix.get(&first, key.c_str(), nullptr, 0, &got)));
  if (got == nullptr || got->type != kString) return Fail(Code::kUnknown, "PMIx_Get gave no text for {}", key);
  return std::string(got->text);  // the value is the library's to free, which has no function for it in its ABI
}

}  // namespace

Status ProbePmix() {
  HVD_RETURN_IF_ERROR(Open());
  return {};
}

Result<std::string> ShareByPmix(int rank, const std::string& key, const std::string& text, Time deadline) {
  // PMIx's calls know no time-out that every server keeps: they run on a thread that is left behind if it must be.
  struct Answer {
    std::mutex mutex;
    std::condition_variable came;
    std::optional<Result<std::string>> result;
  };
  const auto answer = std::make_shared<Answer>();
  std::thread([answer, rank, key, text] {
    auto result = Share(rank, key, text);
    const std::lock_guard lock(answer->mutex);
    answer->result = std::move(result);
    answer->came.notify_all();
  }).detach();
  std::unique_lock lock(answer->mutex);
  if (answer->came.wait_until(lock, deadline, [&] { return answer->result.has_value(); })) return *answer->result;
  return Fail(Code::kDeadlineExceeded, "not all ranks came to PMIx's fence in time");
}

}  // namespace hvd::pmi
