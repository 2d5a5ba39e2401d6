# SPDX-License-Identifier: Apache-2.0
"""The wheel for clusters: what is in it, and that a job runs from it alone."""

import hashlib
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

from conftest import DIST, ROOT, Environment

RANK = """
import numpy as np
import horovod.numpy as hvd
hvd.init()
print(hvd.allreduce(np.ones(3), op=hvd.Sum, name="x").tolist())
"""


def test_files_and_checksums(wheels):
    sums = dict(reversed(line.split()) for line in (DIST / "SHA256SUMS").read_text().splitlines())
    assert set(sums) | {"SHA256SUMS"} == {path.name for path in DIST.iterdir()}
    for name, digest in sums.items():
        assert hashlib.sha256((DIST / name).read_bytes()).hexdigest() == digest
    assert wheels[0].name.endswith("-py3-none-manylinux_2_28_x86_64.whl")


def test_debug_information_is_in_the_other_file(wheels, tmp_path):
    with tarfile.open(next(DIST.glob("*-debug-*.tar.xz"))) as archive:
        debug = set(archive.getnames())
    with zipfile.ZipFile(wheels[0]) as wheel:
        for member in wheel.infolist():
            path = pathlib.Path(wheel.extract(member, tmp_path))
            if not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
                continue
            listing = subprocess.run(["readelf", "-SnW", path], capture_output=True, text=True, check=True).stdout
            assert ".debug_info" not in listing
            build_id = re.search(r"Build ID: ([0-9a-f]+)", listing)[1]
            debug.remove(f".build-id/{build_id[:2]}/{build_id[2:]}.debug")
    assert not [name for name in debug if name.endswith(".debug")]


def test_a_job_runs(installed):
    said = installed.succeed("horovodrun", "-np", "2", "python", "-c", RANK)
    assert said.count("[2.0, 2.0, 2.0]") == 2


def test_doctor_finds_nothing_wrong(installed):
    assert "0 failures" in installed.succeed("horovodrun", "doctor", "-np", "2")


def test_hvd_perf_measures(installed):
    said = installed.succeed("horovodrun", "-np", "2", "hvd_perf", "--sizes", "8,64K")
    assert "allreduce" in said


def test_keras_trains(wheels, tmp_path):
    environment = Environment(sys.executable, tmp_path / "keras")
    environment.pip("install", "--no-deps", wheels[0])
    # TensorFlow, Keras and NumPy as they are installed for this clone; installing them again would take a minute.
    (packages,) = (ROOT / ".venv/lib").glob("python3.*/site-packages")
    (own,) = (tmp_path / "keras/lib").glob("python3.*/site-packages")
    (own / "clone.pth").write_text(f"{packages}\n")
    said = environment.succeed("horovodrun", "-np", "2", "python", ROOT / "tests/wheel/fit.py")
    assert said.count(f"horovod from {own}") == 2
    assert said.count("the loss fell") == 2
