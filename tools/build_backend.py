# SPDX-License-Identifier: Apache-2.0
"""What pip builds the package with: scikit-build-core, after a look whether all that it needs is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import scikit_build_core.build as scikit_build
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

# What must be there, and its packages: Debian's name, Red Hat's name (partly in EPEL and CRB).
_PROGRAMS = {
    "cmake": ("cmake", "cmake"),
    "ninja": ("ninja-build", "ninja-build"),
    "flatc": ("flatbuffers-compiler", "flatbuffers-compiler"),
}
_COMPILER = ("g++", "gcc-c++")
_NEWER_COMPILER = (
    "name a compiler that does in CXX, such as g++ 12 or newer (`dnf install gcc-toolset-12` on Red Hat), "
    "or install a wheel of hvd, which needs none."
)
_HEADERS = {
    "tl/expected.hpp": ("libexpected-dev", "expected-devel"),
    "flatbuffers/flatbuffers.h": ("libflatbuffers-dev", "flatbuffers-devel"),
    "fmt/format.h": ("libfmt-dev", "fmt-devel"),
    "hwy/highway.h": ("libhwy-dev", "highway-devel"),
    "openssl/ssl.h": ("libssl-dev", "openssl-devel"),
    "yaml-cpp/yaml.h": ("libyaml-cpp-dev", "yaml-cpp-devel"),
    "nlohmann/json.hpp": ("nlohmann-json3-dev", "json-devel"),
}


def missing() -> list[tuple[str, str]]:
    """Return the packages that this machine lacks for a build."""
    found = [packages for name, packages in _PROGRAMS.items() if shutil.which(name) is None]
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return [_COMPILER, *found, *_HEADERS.values()]
    probe = "".join(f"#if !__has_include(<{name}>)\nlacks {name}\n#endif\n" for name in _HEADERS)
    command = [compiler, "-x", "c++", "-std=c++20", "-E", "-P", "-"]
    done = subprocess.run(command, input=probe, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        sys.exit(f"hvd cannot be built, because {compiler} does not compile C++20 ({reason}): {_NEWER_COMPILER}")
    lacking = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("lacks ")}
    return [*found, *(packages for name, packages in _HEADERS.items() if name in lacking)]


def _check() -> None:
    packages = missing()
    if packages:
        debian, red_hat = (" ".join(names) for names in zip(*packages))
        sys.exit(
            f"hvd cannot be built, because packages are missing: run `apt-get install {debian}` on Debian and Ubuntu, "
            f"or `dnf install {red_hat}` on Fedora and Red Hat, or install a wheel of hvd, which needs none of them."
        )


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the metadata of a wheel, as PEP 517 says; pip asks for it first."""
    _check()
    return scikit_build.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """Write the metadata of an editable wheel, as PEP 660 says; pip asks for it first."""
    _check()
    return scikit_build.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel, as PEP 517 says."""
    _check()
    return scikit_build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Build an editable wheel, as PEP 660 says."""
    _check()
    return scikit_build.build_editable(wheel_directory, config_settings, metadata_directory)
