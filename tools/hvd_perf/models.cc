// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/models.h"

#include <cstring>

namespace hvd_perf {

uint64_t Model::elements() const {
  uint64_t sum = 0;
  for (const Gradient& gradient : gradients) sum += gradient.elements;
  return sum;
}

const Model* FindModel(const char* name) {
  static const std::vector<Model> models = {
#include "models.inc"
  };
  for (const Model& model : models) {
    if (std::strcmp(model.name, name) == 0) return &model;
  }
  return nullptr;
}

}  // namespace hvd_perf
