// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/tcp/factory.h"

#include "hvd/transport/tcp/mesh.h"

namespace hvd::transport::tcp {

Result<std::vector<std::unique_ptr<Pair>>> ConnectAll(const ConnectOptions& options) {
  Mesh mesh(options);
  HVD_RETURN_IF_ERROR(mesh.Prepare());
  return mesh.Run();
}

}  // namespace hvd::transport::tcp
