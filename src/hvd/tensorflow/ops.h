// SPDX-License-Identifier: Apache-2.0
// The operations that TensorFlow's graphs can hold, with the names that Horovod's users know from them.
#ifndef HVD_TENSORFLOW_OPS_H_
#define HVD_TENSORFLOW_OPS_H_

#include <string>

namespace hvd::tensorflow {

// Makes operations and their kernels known to TensorFlow. Returns "" or what went wrong.
std::string RegisterCollectives();
std::string RegisterQueries();

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_OPS_H_
