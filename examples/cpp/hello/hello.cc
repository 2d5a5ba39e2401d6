// SPDX-License-Identifier: Apache-2.0
// Every rank gives its number; every rank learns the sum.
#include <hvd/hvd.hpp>
#include <iostream>

int main() {
  hvd::session job;
  const int sum = hvd::allreduce(hvd::rank(), {.op = hvd::op::sum, .name = "ranks"});
  std::cout << "rank " << hvd::rank() << " of " << hvd::size() << ": the sum of all ranks is " << sum << '\n';
}
