# SPDX-License-Identifier: Apache-2.0
"""The package as installed: versions, the library file, what it says when something is wrong."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys

import horovod
import pytest
from horovod.common import abi, library
from horovod.common.exceptions import HorovodVersionMismatchError, HostsUpdatedInterrupt, get_version_mismatch_message

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, **env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version_is_newer_than_the_last_horovod_and_stands_in_one_place():
    numbers = tuple(int(part) for part in horovod.__version__.split(".")[:3])
    assert numbers > (0, 28, 1)
    assert library.load().hvd_version().decode() == horovod.__version__
    assert f"project(hvd VERSION {horovod.__version__}" in (ROOT / "CMakeLists.txt").read_text()


def test_structs_have_the_layout_of_the_header(tmp_path):
    structs = {
        "hvd_buffer": abi.Buffer,
        "hvd_request": abi.Request,
        "hvd_output": abi.Output,
        "hvd_init_options": abi.InitOptions,
        "hvd_counters": abi.Counters,
    }
    lines = []
    for name, struct in structs.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
        for field, *_ in struct._fields_:
            offset = getattr(struct, field).offset
            lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
    source = tmp_path / "layout.c"
    source.write_text('#include "hvd/hvd.h"\n' + "\n".join(lines) + "\n")
    command = ["cc", "-I", str(ROOT / "include"), "-fsyntax-only", str(source)]
    subprocess.run(command, check=True, timeout=60)


def test_numbers_are_those_of_the_header():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include/hvd/hvd.h").read_text(), flags=re.S)
    header = {name: int(value) for name, value in re.findall(r"\bHVD_([A-Z0-9_]+) = (\d+)", text)}
    for name, code in abi.DTYPES.items():
        assert header[name.upper()] == code
    for name in ("AVERAGE", "SUM", "ADASUM", "MIN", "MAX", "PRODUCT", "ALLREDUCE", "ALLGATHER", "BROADCAST", "BARRIER"):
        assert header[name] == getattr(abi, name)
    for name in ("UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "ABORTED", "IN_PROGRESS"):
        assert header[name] == getattr(abi, name)
    for name in ("RANK", "SIZE", "LOCAL_RANK", "CROSS_SIZE", "IS_HOMOGENEOUS", "PEERS_BY_SHM"):
        assert header[name] == getattr(abi, f"QUERY_{name}")


def test_a_missing_library_is_an_import_error_that_says_what_to_do():
    result = run_python("import horovod.numpy as hvd; hvd.init()", HVD_LIBRARY="/nowhere/libhvd.so")
    assert result.returncode != 0
    assert "ImportError: HVD_LIBRARY=/nowhere/libhvd.so names no file" in result.stderr


def test_a_wrong_library_is_an_import_error(tmp_path):
    other = tmp_path / "libhvd.so"
    other.write_text("not a library")
    result = run_python("import horovod.numpy as hvd; hvd.init()", HVD_LIBRARY=str(other))
    assert "cannot be used" in result.stderr
    assert "Reinstall" in result.stderr


def test_files_of_another_horovod_are_noticed(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "mpi_lib_v2.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "metadata.json").touch()
    assert len(library.find_other_distributions([tmp_path])) == 2
    monkeypatch.setattr(library, "package_folders", lambda: [tmp_path])
    with pytest.warns(RuntimeWarning, match="pip uninstall -y horovod hvd"):
        library.warn_of_other_distributions()


def test_only_functions_of_the_header_are_exported():
    path = library._find()
    listing = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1].split("@")[0] for line in listing.splitlines()]
    assert names
    assert [name for name in names if not name.startswith("hvd_")] == []


@pytest.mark.row("i1")
def test_importing_needs_no_framework_and_is_silent():
    result = run_python(
        "import horovod.numpy, sys; assert 'torch' not in sys.modules and 'tensorflow' not in sys.modules"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_launcher_is_needed_for_one_process():
    code = "import horovod.numpy as hvd, numpy as np; hvd.init(); print(hvd.allreduce(np.ones(3)), hvd.size())"
    result = run_python(code)
    assert result.stdout == "[1. 1. 1.] 1\n"
    assert result.returncode == 0


def test_exception_types():
    interrupt = HostsUpdatedInterrupt(skip_sync=True)
    assert isinstance(interrupt, RuntimeError)
    assert interrupt.skip_sync is True
    error = HorovodVersionMismatchError("torch", "2.1", "2.9")
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ("torch", "2.1", "2.9")
    assert str(error) == get_version_mismatch_message("torch", "2.1", "2.9")


def test_documentation_of_variables_is_current():
    import gen_env

    assert gen_env.TARGET.read_text() == gen_env.text(), "run make docs"
