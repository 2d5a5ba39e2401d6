// SPDX-License-Identifier: Apache-2.0
#include "hvd/tensorflow/tf_api.h"

#include <dlfcn.h>

#include <array>

namespace hvd::tensorflow {

// Plain pointers without constructor or destructor: threads of ours may use it until the process has ended.
constinit TfApi tf;

std::string LoadTfApi() {
  // Libraries by their soname, as Python loads them with RTLD_LOCAL. Some functions are in both; those of the first
  // count.
  const std::array<void*, 3> libraries = {dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD),
                                          dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD), RTLD_DEFAULT};
  std::string missing;
  const auto find = [&](const char* name) -> void* {
    for (void* library : libraries) {
      // RTLD_DEFAULT is a null pointer: only a library that is not there must be left out.
      if (library == nullptr && library != libraries.back()) continue;
      if (void* found = dlsym(library, name)) return found;
    }
    missing += missing.empty() ? name : std::string(", ") + name;
    return nullptr;
  };
#define HVD_TF_FIND(name, result, arguments) tf.name = reinterpret_cast<result(*) arguments>(find(#name));
  HVD_TF_FUNCTIONS(HVD_TF_FIND)
#undef HVD_TF_FIND
  return missing;
}

}  // namespace hvd::tensorflow
