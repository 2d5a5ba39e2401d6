// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/heap.h"

#include <glob.h>
#include <unistd.h>

#include <climits>
#include <string>

#include "hvd/base/log.h"
#include "hvd/launch/plan/paths.h"

namespace hvd::launch {
namespace {

constexpr const char* kVariable = "HOROVOD_HEAP";
constexpr const char* kPreload = "LD_PRELOAD";

// Beside the folder of this program: of a build, of an environment of Python, of pip's --target.
constexpr const char* kPlaces[] = {"/../libhvd_heap.so", "/../lib*/python3*/*-packages/horovod/lib/libhvd_heap.so",
                                   "/../horovod/lib/libhvd_heap.so"};

Result<std::string> FindLibrary() {
  char self[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
  const std::string program(self, size > 0 ? static_cast<size_t>(size) : 0);
  const std::string folder = program.substr(0, program.rfind('/'));
  for (const char* place : kPlaces) {
    glob_t found{};
    const bool any = ::glob((folder + place).c_str(), 0, nullptr, &found) == 0;
    const std::string library = any ? found.gl_pathv[0] : "";
    ::globfree(&found);
    if (any) return library;
  }
  return Fail(Code::kNotFound, "--heap arena: libhvd_heap.so is not beside {}; say --heap system", program);
}

}  // namespace

Status CheckHeap(const Environment& environment) {
  const std::string value = environment.Get(kVariable).value_or("system");
  if (value == "arena" || value == "system") return {};
  return Fail(Code::kInvalidArgument, "{}={} is not valid: give one of \"arena system\", or unset it", kVariable,
              value);
}

Status PreloadHeap(Environment* environment) {
  if (environment->Get(kVariable).value_or("system") != "arena") return {};
  const std::string before = environment->Get(kPreload).value_or("");
  for (const char* sanitizer : {"libasan", "libtsan", "libmsan", "liblsan", "libclang_rt"}) {
    if (before.find(sanitizer) == std::string::npos) continue;
    log::Warning("--heap arena has no effect, because ranks are preloaded with a sanitizer");
    return {};
  }
  HVD_ASSIGN_OR_RETURN(const std::string library, FindLibrary());
  environment->Set(kPreload, before.empty() ? library : library + ":" + before);
  return {};
}

}  // namespace hvd::launch
