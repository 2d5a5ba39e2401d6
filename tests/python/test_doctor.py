# SPDX-License-Identifier: Apache-2.0
"""horovodrun doctor: what it finds here, what it says of hosts that are not there, and how it judges."""

import dataclasses
import doctest
import importlib
import json
import os
import sys

import pytest
from horovod.doctor.findings import Level
from horovod.doctor.machine import examine, gather
from horovod.doctor.speed import measure_here
from launching import horovodrun

# The first horovodrun in PATH shall be the one under test.
HERE = {"PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]}


def levels(findings):
    return {finding.what: finding.level for finding in findings}


@pytest.mark.parametrize("module", ["findings", "machine", "installation", "network", "speed"])
def test_examples(module):
    result = doctest.testmod(importlib.import_module(f"horovod.doctor.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_this_machine_is_well():
    result = horovodrun("doctor", "-np", "1", env=HERE)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "FAIL" not in result.stdout
    assert "MB/s" in result.stdout


def test_json_and_variables_without_effect():
    known = {"HOROVOD_HEAP": "system", "HOROVOD_ELASTIC_TIMEOUT": "9"}
    useless = {"HOROVOD_FUSION_TRESHOLD": "1", "HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_CYCLE_TIME": "1"}
    result = horovodrun("doctor", "--json", env={**HERE, **known, **useless})
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    (variables,) = [finding for finding in report["findings"] if finding["what"] == "variables"]
    assert variables["level"] == "WARN"
    assert "HOROVOD_FUSION_TRESHOLD (not known; is HOROVOD_FUSION_THRESHOLD meant?)" in variables["text"]
    assert "HOROVOD_CYCLE_TIME (this engine has no cycle to wait for)" in variables["text"]
    assert "HOROVOD_GPU_OPERATIONS (hvd has one build" in variables["text"]
    assert not [name for name in known if name in variables["text"]]
    assert len(report["pairs"]) == 1


# Python imports it at its start: NumPy is there, and cannot be found.
WITHOUT_NUMPY = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy" or name.startswith("numpy."):
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
sys.meta_path.insert(0, Blocker())
"""


def test_without_numpy_a_line_says_so(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_NUMPY)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    result = horovodrun("doctor", env={**HERE, "PYTHONPATH": path})
    assert result.returncode == 1
    assert "FAIL  NumPy: every module of this package needs it" in result.stdout, result.stdout + result.stderr
    assert "-> pip install numpy" in result.stdout
    assert "Traceback" not in result.stderr


def test_the_speed_is_what_hvd_perf_measures():
    pairs = measure_here()
    assert pairs is not None
    ((one, other, microseconds, megabytes),) = pairs
    assert (one, other) == (0, 1)
    assert microseconds > 0
    assert megabytes > 0


def test_a_host_that_is_not_there():
    result = horovodrun("doctor", "-H", "localhost:1,no-such-host.invalid:1", env=HERE)
    assert result.returncode == 1
    assert "no-such-host.invalid has no address" in result.stdout
    assert "-> check the spelling" in result.stdout
    assert "WARN  job: none was tried" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-np", "0"), "-np 0: at least 1"),
        (("-H", "a:x"), "'a:x' is not HOST or HOST:SLOTS"),
        (("-H", ","), "names no host"),
        (("--hots", "a"), "--hots"),
    ],
)
def test_wrong_usage(words, said):
    result = horovodrun("doctor", *words)
    assert result.returncode == 2
    assert said in result.stderr


def test_judgements():
    facts = gather()
    install = facts.installation
    well = dataclasses.replace(
        facts, cores=8, quota=None, memory_left=1 << 40, open_files=1 << 16, resolve_error="", addresses=["10.0.0.1"]
    )
    assert levels(examine(well, 4, elsewhere=True))["cores"] is Level.PASS
    assert levels(examine(dataclasses.replace(well, quota=1.5), 4))["cores"] is Level.WARN
    assert levels(examine(dataclasses.replace(well, load=0.2)))["load"] is Level.PASS
    assert levels(examine(dataclasses.replace(well, load=5.0)))["load"] is Level.WARN
    assert levels(examine(dataclasses.replace(well, open_files=256), 4))["limits"] is Level.WARN
    assert levels(examine(dataclasses.replace(well, memory_left=1 << 20)))["shared memory"] is Level.WARN
    assert levels(examine(dataclasses.replace(well, shared_memory_error="no")))["shared memory"] is Level.WARN
    assert levels(examine(dataclasses.replace(well, addresses=["127.0.1.1"]), elsewhere=True))["name"] is Level.WARN
    assert levels(examine(dataclasses.replace(well, resolve_error="?"), elsewhere=True))["name"] is Level.FAIL
    assert levels(examine(dataclasses.replace(well, listen_error="?"), elsewhere=True))["ports"] is Level.FAIL
    in_the_way = dataclasses.replace(install, in_the_way=["horovod/metadata.json"])
    assert levels(examine(dataclasses.replace(well, installation=in_the_way)))["upstream's files"] is Level.FAIL
    broken = dataclasses.replace(install, library_error="libhvd.so: no")
    assert levels(examine(dataclasses.replace(well, installation=broken)))["package"] is Level.FAIL
    none = dataclasses.replace(install, frameworks={"NumPy": "not installed"})
    assert levels(examine(dataclasses.replace(well, installation=none)))["frameworks"] is Level.FAIL
