// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/tensor_labels.h"

#include <map>
#include <mutex>

namespace hvd {
namespace {

constexpr size_t kMostLabels = 65536;

struct Labels {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> of_name;  // guarded by mutex
};

// Never destroyed: threads of the engine may outlive static objects.
Labels& AllLabels() {
  static auto* const labels = new Labels;
  return *labels;
}

}  // namespace

void LabelTensor(std::string_view name, std::string_view label) {
  Labels& labels = AllLabels();
  const std::lock_guard lock(labels.mutex);
  const auto found = labels.of_name.find(name);
  if (found != labels.of_name.end()) {
    found->second = label;
  } else if (labels.of_name.size() < kMostLabels) {
    labels.of_name.emplace(name, label);
  }
}

std::string TensorLabel(std::string_view name) {
  Labels& labels = AllLabels();
  const std::lock_guard lock(labels.mutex);
  const auto found = labels.of_name.find(name);
  return found == labels.of_name.end() ? std::string() : found->second;
}

std::string TensorLabelInBrackets(std::string_view name) {
  const std::string label = TensorLabel(name);
  return label.empty() ? label : " (" + label + ")";
}

}  // namespace hvd
