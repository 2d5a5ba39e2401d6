// SPDX-License-Identifier: Apache-2.0
#pragma once
// An hvd_request together with the name and the shape that it points to.
//
// Request sum(HVD_ALLREDUCE, "x", {3}, data);
// sum->process_set = 1;
// hvd_run(ctx, sum, nullptr);

#include <cstdint>
#include <string>
#include <vector>

#include "hvd/hvd.h"

namespace hvd::test {

class Request {
 public:
  // Of float32. Allreduce (a sum) and broadcast work in place; the other outputs are the engine's.
  Request(int op, std::string name, std::vector<int64_t> shape = {}, const float* data = nullptr)
      : name_(std::move(name)), shape_(std::move(shape)) {
    hvd_request_default(&request_);
    request_.op = op;
    request_.reduce_op = HVD_SUM;
    request_.name = name_.c_str();
    request_.shape = shape_.data();
    request_.ndim = static_cast<int32_t>(shape_.size());
    if (op == HVD_BARRIER) return;
    uint64_t bytes = sizeof(float);
    for (const int64_t dim : shape_) bytes *= static_cast<uint64_t>(dim);
    request_.input = {const_cast<float*>(data), bytes, HVD_CPU, 0};
    if (op == HVD_ALLREDUCE || op == HVD_BROADCAST) request_.output = request_.input;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  hvd_request* operator->() { return &request_; }
  operator const hvd_request*() const { return &request_; }

 private:
  std::string name_;
  std::vector<int64_t> shape_;
  hvd_request request_;
};

// An hvd_output that a call may fill.
inline hvd_output EmptyOutput() {
  hvd_output output{};
  output.struct_size = sizeof output;
  return output;
}

}  // namespace hvd::test
