// SPDX-License-Identifier: Apache-2.0
// Element types: TensorFlow's numbers and ours.
#ifndef HVD_TENSORFLOW_DTYPE_H_
#define HVD_TENSORFLOW_DTYPE_H_

#include <cstdint>

#include "hvd/hvd.h"

namespace hvd::tensorflow {

inline constexpr int kTfInt32 = 3;
inline constexpr int kTfBool = 10;

// -1: a type that is not sent.
constexpr int32_t HvdType(int tf_type) {
  switch (tf_type) {
    case 1:
      return HVD_FLOAT32;
    case 2:
      return HVD_FLOAT64;
    case kTfInt32:
      return HVD_INT32;
    case 4:
      return HVD_UINT8;
    case 5:
      return HVD_INT16;
    case 6:
      return HVD_INT8;
    case 9:
      return HVD_INT64;
    case kTfBool:
      return HVD_BOOL;
    case 14:
      return HVD_BFLOAT16;
    case 17:
      return HVD_UINT16;
    case 19:
      return HVD_FLOAT16;
    default:
      return -1;
  }
}

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_DTYPE_H_
