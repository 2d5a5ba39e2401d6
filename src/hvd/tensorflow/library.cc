// SPDX-License-Identifier: Apache-2.0
// libhvd_tensorflow.so: loading it (tf.load_op_library) makes the operations known to the TensorFlow of this process.
#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>

#include "hvd/hvd.h"
#include "hvd/tensorflow/ops.h"
#include "hvd/tensorflow/tf_api.h"

namespace {

std::string_view FileName(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

// Another copy of this file in the process has registered the operations; a second kernel for the same operation would
// make every call of it fail.
std::string OtherCopy() {
  struct Search {
    std::string_view own;
    std::string other;
  } search;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&OtherCopy), &info) == 0 || info.dli_fname == nullptr) return "";
  search.own = info.dli_fname;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* argument) {
        auto* found = static_cast<Search*>(argument);
        const std::string_view path = object->dlpi_name;
        if (path != found->own && FileName(path) == FileName(found->own)) found->other = path;
        return 0;
      },
      &search);
  return search.other;
}

std::string Register() {
  if (const std::string other = OtherCopy(); !other.empty()) {
    return "another copy is loaded already: " + other;
  }
  if (const std::string missing = hvd::tensorflow::LoadTfApi(); !missing.empty()) {
    return "this TensorFlow lacks functions of its C interface (2.13 or newer has them): " + missing;
  }
  return hvd::tensorflow::RegisterCollectives() + hvd::tensorflow::RegisterQueries();
}

// Never destroyed: what may still run at exit must not meet a dead object.
const std::string& Problem() {
  static const auto& problem = *new std::string(Register());
  return problem;
}

// A dynamic initialiser, which runs while TensorFlow loads this file. An ELF constructor would run before the objects
// above.
[[maybe_unused]] const bool registered = Problem().empty();

}  // namespace

// "" if the operations are registered, else why not.
extern "C" HVD_API const char* hvd_tensorflow_problem() { return Problem().c_str(); }
