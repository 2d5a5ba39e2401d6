# SPDX-License-Identifier: Apache-2.0
"""
Makes what `make wheel` leaves in dist/: the wheel for clusters, its debug information, a wheel that answers to the
name `horovod`, and checksums.

The programs and libraries run from glibc 2.28 on (cmake/old_glibc.cmake); auditwheel judges whether they do. The same
sources and compiler give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build" / "dist"
NEWEST_GLIBC = 28
PLATFORM = f"manylinux_2_{NEWEST_GLIBC}_x86_64"
MOST_BYTES = 7_500_000

# pip removes an older distribution of this name when it installs this one. It must not require hvd: pip installs what
# is required first, and the removal of the older one would then take files of hvd that have the same names.
_STAND_IN = """\
Metadata-Version: 2.1
Name: horovod
Version: {version}
Summary: Answers to the name horovod beside hvd, which has the modules
License: Apache-2.0
Description-Content-Type: text/plain

This distribution holds no files. It satisfies packages that require horovod, and replaces an older horovod.
Install it together with the wheel of hvd {version}, in one command; hvd has the modules.
"""
_STAND_IN_WHEEL = "Wheel-Version: 1.0\nGenerator: hvd\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(f"wheel: {text}", flush=True)


def run(*command: str | pathlib.Path) -> str:
    """Return what a command printed. What it complains of is printed if it fails."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"wheel: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """Return the version that CMakeLists.txt has."""
    return re.search(r"project\(hvd VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def build() -> pathlib.Path:
    """Build the package in the tree of the release build and return its files, unpacked."""
    say("building the package (seconds if `make setup` has run, minutes otherwise)")
    settings = ("build-dir=build/release", "build.targets=wheel_files", "cmake.build-type=RelWithDebInfo")
    options = [f"--config-settings={setting}" for setting in settings]
    if "HVD_BUILD_TESTS:BOOL=ON" in (ROOT / "build/release/CMakeCache.txt").read_text():
        options.append("--config-settings=cmake.define.HVD_BUILD_TESTS=ON")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-build-isolation")
    run(*pip, "--no-deps", "--no-index", "--wheel-dir", WORK, *options, ".")
    (wheel,) = WORK.glob("hvd-*.whl")
    run(sys.executable, "-m", "wheel", "unpack", "--dest", WORK, wheel)
    wheel.unlink()
    (folder,) = WORK.glob("hvd-*")
    return folder


def is_elf(path: pathlib.Path) -> bool:
    """Return whether a file is a program or a library."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def separate_debug_information(folder: pathlib.Path) -> pathlib.Path:
    """Move debug information out of programs and libraries, into an archive laid out as debuggers expect it."""
    say("moving debug information into a file of its own")
    debug = WORK / "debug"
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and is_elf(path)):
        build_id = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "--notes", path))[1]
        target = debug / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
        target.parent.mkdir(parents=True, exist_ok=True)
        run("objcopy", "--only-keep-debug", path, target)
        run("strip", "--strip-unneeded", path)
    archive = DIST / f"hvd-{version()}-debug-x86_64.tar.xz"
    with tarfile.open(archive, "w:xz", preset=1) as file:
        file.add(debug / ".build-id", ".build-id", filter=_without_owner)
    return archive


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
    return info


def pack(folder: pathlib.Path) -> pathlib.Path:
    """Pack the files as a wheel for the platform."""
    say(f"packing for {PLATFORM}")
    metadata = next(folder.glob("*.dist-info")) / "WHEEL"
    metadata.write_text(re.sub(r"^Tag: .*$", f"Tag: py3-none-{PLATFORM}", metadata.read_text(), flags=re.M))
    run(sys.executable, "-m", "wheel", "pack", "--dest", DIST, folder)
    return DIST / f"hvd-{version()}-py3-none-{PLATFORM}.whl"


def make_stand_in() -> pathlib.Path:
    """Make the wheel named horovod."""
    folder = WORK / f"horovod-{version()}"
    metadata = folder / f"horovod-{version()}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(_STAND_IN.format(version=version()))
    (metadata / "WHEEL").write_text(_STAND_IN_WHEEL)
    run(sys.executable, "-m", "wheel", "pack", "--dest", DIST, folder)
    return DIST / f"horovod-{version()}-py3-none-any.whl"


def judge(wheel: pathlib.Path) -> None:
    """End with a sentence if the wheel would not run where its name says, or is too large."""
    said = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    found = re.search(r'consistent with the following platform tag: "manylinux_2_(\d+)_x86_64"', said)
    if found is None or int(found[1]) > NEWEST_GLIBC:
        sys.exit(f"wheel: auditwheel does not find {wheel.name} fit for {PLATFORM}:\n{said}")
    say(f"auditwheel: {wheel.name} runs from glibc 2.{found[1]} on")
    if wheel.stat().st_size > MOST_BYTES:
        sys.exit(f"wheel: {wheel.name} has {wheel.stat().st_size} bytes, more than {MOST_BYTES}")


def main() -> None:
    """Make everything anew."""
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    # The times of files in archives are not those of this build.
    os.environ.setdefault("SOURCE_DATE_EPOCH", "1767225600")
    folder = build()
    debug = separate_debug_information(folder)
    wheel = pack(folder)
    stand_in = make_stand_in()
    judge(wheel)
    files = [wheel, stand_in, debug]
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    for file in files:
        say(f"dist/{file.name}  {file.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
