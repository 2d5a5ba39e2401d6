// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/plan.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace hvd::controller {
namespace {

bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace

bool FirstDimIsFree(OpKind op) { return op == OpKind::kAllgather || op == OpKind::kAlltoall; }

bool Repeats(const Signature& signature) {
  if (signature.op != OpKind::kAlltoall) return IsCollective(signature.op);
  const auto& splits = signature.numbers;
  if (splits.empty() || signature.shape.empty()) return false;
  return std::all_of(splits.begin(), splits.end(), [&](int64_t rows) { return rows == splits[0]; }) &&
         splits[0] * std::ssize(splits) == signature.shape[0];
}

std::vector<int64_t> EvenRows(const std::vector<int64_t>& first_dims) {
  std::vector<int64_t> rows;
  rows.reserve(first_dims.size() * first_dims.size());
  for (const int64_t dim : first_dims) rows.insert(rows.end(), first_dims.size(), dim / std::ssize(first_dims));
  return rows;
}

int64_t FirstDim(const Signature& signature) {
  return FirstDimIsFree(signature.op) && !signature.shape.empty() ? signature.shape[0] : 0;
}

Signature Canonical(Signature signature) {
  const Signature defaults;
  if (!Reduces(signature.op)) {
    signature.reduce_op = defaults.reduce_op;
    signature.prescale = defaults.prescale;
    signature.postscale = defaults.postscale;
  }
  if (signature.op != OpKind::kBroadcast) signature.root = defaults.root;
  if (!HasTensor(signature.op)) signature.shape.clear();
  if (!ChangesProcessSets(signature.op)) signature.numbers.clear();
  if (FirstDimIsFree(signature.op) && !signature.shape.empty()) signature.shape[0] = 0;
  return signature;
}

bool Fits(const Plan& plan, const Signature& signature) {
  // The same as comparing with Canonical(signature), without the copy: a member asks this for every operation.
  const Signature& a = plan.signature;
  const Signature& b = signature;
  if (a.op != b.op || a.dtype != b.dtype || a.device != b.device) return false;
  if (Reduces(a.op) &&
      (a.reduce_op != b.reduce_op || !SameBits(a.prescale, b.prescale) || !SameBits(a.postscale, b.postscale))) {
    return false;
  }
  if (a.op == OpKind::kBroadcast && a.root != b.root) return false;
  if (!HasTensor(a.op)) return true;
  if (a.op == OpKind::kAlltoall && !Repeats(b)) return false;
  if (a.shape.size() != b.shape.size()) return false;
  const size_t from = FirstDimIsFree(a.op) && !a.shape.empty() ? 1 : 0;
  return std::equal(a.shape.begin() + from, a.shape.end(), b.shape.begin() + from);
}

int64_t InputBytes(const Signature& signature) {
  int64_t bytes = static_cast<int64_t>(SizeOf(signature.dtype));
  for (const int64_t dim : signature.shape) {
    if (dim == 0) return 0;
  }
  for (const int64_t dim : signature.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::numeric_limits<int64_t>::max();
  }
  return bytes;
}

}  // namespace hvd::controller
