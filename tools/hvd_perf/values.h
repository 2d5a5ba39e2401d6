// SPDX-License-Identifier: Apache-2.0
#pragma once
// Test data whose reduction is exact in every element type, so that a result can be compared without a tolerance.
#include <cstdint>
#include <string>

namespace hvd_perf {

uint64_t ElementSize(int32_t dtype);

// What rank `rank` of `ranks` puts in, element by element. Values are small: sums of up to 60 ranks fit every type.
void FillInput(void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int rank, int ranks);

// "" or the first difference between a rank's output and the expected one. `count` is that of a block.
std::string CheckAllreduce(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks);
std::string CheckAllgather(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks);
std::string CheckAlltoall(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks, int rank);
std::string CheckReducescatter(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks, int rank);
std::string CheckBroadcast(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks, int root);

}  // namespace hvd_perf
