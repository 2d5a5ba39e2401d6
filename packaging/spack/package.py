# SPDX-License-Identifier: Apache-2.0
# In a spack repository as packages/py-hvd/package.py. `make wheel` first; then, in the project's folder:
#   HVD_DIST=$PWD/dist spack install --no-checksum py-hvd
import os

from spack.package import *


class PyHvd(PythonPackage):
    """Data-parallel training with the Horovod API on an engine written from scratch."""

    license("Apache-2.0")
    wheel = "hvd-0.30.0-py3-none-manylinux_2_28_x86_64.whl"
    version("0.30.0", url=f"file://{os.environ.get('HVD_DIST', 'dist')}/{wheel}", expand=False)

    conflicts("platform=darwin")
    requires("target=x86_64:", msg="the wheel is for Linux on x86_64")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-pip", type="build")
    depends_on("py-numpy", type=("build", "run"))
    depends_on("py-cloudpickle", type=("build", "run"))

    def test_job(self):
        """Two ranks on this machine."""
        which(self.prefix.bin.horovodrun)("-np", "2", self.prefix.bin.hvd_perf, "--sizes", "8")
