# SPDX-License-Identifier: Apache-2.0
"""What is installed: this package, what may be in its way, the frameworks, and other people's engines."""

from __future__ import annotations

import ctypes.util
import dataclasses
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys

from horovod.common.library import REMEDY
from horovod.doctor.findings import Finding, failure, passed, warning

_ENGINES = {"Open MPI or MPICH": ("mpi", "mpich"), "NCCL": ("nccl",), "UCX": ("ucp",)}


@dataclasses.dataclass
class Installation:
    """Plain values only: it travels as JSON."""

    python: str
    version: str
    place: str
    library_error: str
    in_the_way: list[str]
    shadowed: list[str]
    frameworks: dict[str, str | None]  # why one cannot be used; None: it can
    versions: dict[str, str]
    engines: dict[str, str]
    mpirun: str
    horovodrun: str


def inspect_installation() -> Installation:
    """
    Look at what is installed for this Python.

    >>> inspect_installation().library_error
    ''
    """
    import horovod
    from horovod.common.library import find_other_distributions, load, package_folders
    from horovod.runner.check_build import check

    place = pathlib.Path(horovod.__file__).parent
    try:
        load()
        library_error = ""
    except ImportError as error:
        library_error = str(error)
    frameworks = check()["Available Frameworks"]
    found = {name: next(filter(None, map(ctypes.util.find_library, names)), "") for name, names in _ENGINES.items()}
    return Installation(
        python=f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} ({sys.executable})",
        version=horovod.__version__,
        place=str(place),
        library_error=library_error,
        in_the_way=[str(path) for path in find_other_distributions(package_folders())],
        shadowed=_find_shadowed(place),
        frameworks=frameworks,
        versions={name: _version_of(name) for name, why in frameworks.items() if why is None},
        engines={name: library for name, library in found.items() if library},
        mpirun=_version_of_mpirun(),
        horovodrun=_examine_horovodrun(),
    )


def _version_of(framework: str) -> str:
    for distribution in (framework.lower(), f"{framework.lower()}-cpu", {"PyTorch": "torch"}.get(framework, "")):
        try:
            return importlib.metadata.version(distribution) if distribution else ""
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _find_shadowed(place: pathlib.Path) -> list[str]:
    found = []
    for folder in dict.fromkeys(sys.path):
        other = pathlib.Path(folder or ".") / "horovod" / "__init__.py"
        if other.exists() and not other.samefile(place / "__init__.py"):
            found.append(str(other.parent))
    return found


def _version_of_mpirun() -> str:
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        return ""
    try:
        said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{mpirun} does not answer: {error}"
    named = re.search(r"\(Open MPI\) [\d.]+", said) or re.search(r"HYDRA[\s\S]*?Version:\s*([\d.]+)", said)
    name = "unknown kind" if named is None else named[0] if named.re.groups == 0 else f"MPICH {named[1]}"
    return f"{name.replace('(', '').replace(')', '')} at {mpirun}"


def _examine_horovodrun() -> str:
    """Return what is wrong with the one that a shell would start."""
    found = shutil.which("horovodrun")
    if found is None:
        return "horovodrun is not in PATH"
    with open(found, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return f"{found} is a script and not the program of this package"
    return ""


def judge_installation(facts: Installation) -> list[Finding]:
    """Judge it."""
    findings = [passed("Python", facts.python)]
    if facts.library_error:
        findings.append(failure("package", facts.library_error, "install the hvd package again with this Python's pip"))
    else:
        findings.append(passed("package", f"hvd {facts.version} in {facts.place}"))
    if facts.in_the_way:
        findings.append(
            failure(
                "upstream's files",
                f"another Horovod is in the way: {', '.join(facts.in_the_way)}",
                REMEDY,
            )
        )
    if facts.shadowed:
        text = f"{', '.join(facts.shadowed)} is on Python's path as well; {facts.place} is used"
        findings.append(warning("other copies", text, "look at PYTHONPATH and at what pip list shows"))
    if facts.horovodrun:
        findings.append(
            warning("horovodrun", facts.horovodrun, f"put {pathlib.Path(sys.executable).parent} first in PATH")
        )
    if no_numpy := facts.frameworks.get("NumPy"):
        findings.append(failure("NumPy", f"every module of this package needs it: {no_numpy}", "pip install numpy"))
    usable = [f"{name} {facts.versions.get(name, '')}".strip() for name, why in facts.frameworks.items() if why is None]
    findings.append(
        passed("frameworks", ", ".join(usable))
        if usable
        else failure("frameworks", "none can be used", "horovodrun --check-build says why")
    )
    engines = [f"{name} ({library})" for name, library in facts.engines.items()]
    if facts.mpirun:
        engines.append(f"mpirun: {facts.mpirun}")
    findings.append(passed("other engines", ", ".join(engines) or "no MPI, NCCL or UCX found; none is needed"))
    return findings
