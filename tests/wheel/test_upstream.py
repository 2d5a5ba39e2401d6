# SPDX-License-Identifier: Apache-2.0
"""The wheel beside Horovod 0.28.1, which has the same folder, and in its place."""

import importlib.metadata
import os
import pathlib
import sys
import zipfile

import pytest
from conftest import Environment

# A few of the files that the release has: modules that hvd has, too, and a compiled one that it has not.
UPSTREAM = {
    "horovod/__init__.py": "__version__ = '0.28.1'\n",
    "horovod/common/__init__.py": "",
    "horovod/tensorflow/__init__.py": "raise ImportError('not built')\n",
    "horovod/tensorflow/mpi_lib.cpython-311-x86_64-linux-gnu.so": "not a library",
    "horovod-0.28.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n",
    "horovod-0.28.1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "horovod-0.28.1.dist-info/entry_points.txt": "[console_scripts]\nhorovodrun = horovod.runner.launch:main\n",
}


@pytest.fixture
def upstream(tmp_path):
    """A wheel that looks like Horovod 0.28.1."""
    path = tmp_path / "horovod-0.28.1-py3-none-any.whl"
    record = "horovod-0.28.1.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**UPSTREAM, record: "".join(f"{name},,\n" for name in [*UPSTREAM, record])}.items():
            wheel.writestr(name, text)
    return path


def test_beside_and_in_the_place_of_upstream(wheels, upstream, tmp_path):
    environment = Environment(sys.executable, tmp_path / "environment")
    environment.pip("install", upstream)
    environment.pip("install", wheels[0])
    said = environment.run("python", "-c", "import horovod").stderr
    assert "RuntimeWarning: Another Horovod is installed in the folder of hvd" in said
    assert "pip uninstall -y horovod hvd" in said
    doctor = environment.run("horovodrun", "doctor")
    assert doctor.returncode == 1
    assert "another Horovod is in the way" in doctor.stdout
    assert "horovod-0.28.1.dist-info" in doctor.stdout

    # What both of them advise.
    environment.pip("uninstall", "-y", "horovod", "hvd")
    environment.pip("install", upstream)

    environment.pip("install", *wheels)
    _is_whole(environment, "horovod")
    environment.pip("uninstall", "-y", "horovod")
    _is_whole(environment)


def _is_whole(environment, *names):
    """Check that every file of hvd is there, nothing is in its way, and it answers to the names."""
    (packages,) = environment.bin.parent.glob("lib/python3.*/site-packages")
    found = {found.name: found for found in importlib.metadata.distributions(path=[str(packages)])}
    assert {"horovod", "hvd"} & set(found) == {*names, "hvd"}
    assert {found[name].version for name in (*names, "hvd")} == {found["hvd"].version}
    files = [pathlib.Path(file.locate()) for file in found["hvd"].files]
    assert [file for file in files if not file.exists()] == []
    assert os.access(environment.bin / "horovodrun", os.X_OK)
    result = environment.run("python", "-c", "import horovod.numpy as hvd; hvd.init()")
    assert (result.returncode, result.stderr) == (0, "")
    assert "0 failures" in environment.succeed("horovodrun", "doctor")
