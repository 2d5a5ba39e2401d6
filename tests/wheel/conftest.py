# SPDX-License-Identifier: Apache-2.0
"""What `make wheel` makes, and environments to install it into that have no compiler, cmake or headers on PATH."""

import functools
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"


class Environment:
    """A virtual environment whose programs find nothing but its own ones on PATH."""

    def __init__(self, python, folder):
        subprocess.run([python, "-m", "venv", folder], check=True, timeout=120)
        self.bin = folder / "bin"
        self.variables = {"PATH": str(self.bin), "HOME": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2"}

    def run(self, *words, **more):
        return subprocess.run(
            [self.bin / words[0], *words[1:]],
            env={**self.variables, **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def succeed(self, *words, **more):
        result = self.run(*words, **more)
        assert result.returncode == 0, f"{words}:\n{result.stdout}{result.stderr}"
        return result.stdout

    def pip(self, *words):
        # Where packages come from is the business of whoever runs the tests.
        command = [self.bin / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
        subprocess.run(command, check=True, timeout=300)


@pytest.fixture(scope="session")
def wheels():
    """The wheels of hvd and of its stand-in named horovod."""
    subprocess.run(["make", "wheel"], cwd=ROOT, check=True, timeout=600)
    return next(DIST.glob("hvd-*.whl")), next(DIST.glob("horovod-*.whl"))


@functools.cache
def newer_python():
    """The newest Python found that is newer than this one."""
    on_path = [shutil.which(f"python3.{minor}") for minor in range(sys.version_info.minor + 1, 16)]
    beside_this_one = pathlib.Path(sys.base_prefix).parent.glob("3.*/bin/python3")
    found = {}
    for python in filter(None, [*on_path, *beside_this_one]):
        result = subprocess.run([python, "-V"], capture_output=True, text=True, timeout=30, check=False)
        version = re.fullmatch(r"Python 3\.(\d+)\.\d+\n", result.stdout)
        if result.returncode == 0 and version and int(version[1]) > sys.version_info.minor:
            found[int(version[1])] = python
    return found[max(found)] if found else None


@pytest.fixture(scope="session", params=["this Python", "a newer Python"])
def installed(request, wheels, tmp_path_factory):
    """An environment with Python, pip, and what installing the wheel has brought."""
    python = sys.executable if request.param == "this Python" else newer_python()
    if python is None:
        pytest.skip("no newer Python found")
    environment = Environment(python, tmp_path_factory.mktemp("installed"))
    environment.pip("install", wheels[0])
    return environment
