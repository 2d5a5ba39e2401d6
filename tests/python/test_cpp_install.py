# SPDX-License-Identifier: Apache-2.0
"""hvd as a C++ program outside this tree sees it: installed, found, compiled against, run as ranks."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import spawn

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = [ROOT / "include/hvd/hvd.hpp", *sorted((ROOT / "include/hvd/cpp").glob("*.hpp"))]
QUICKSTART = ROOT / "docs/quickstart/cpp.md"
PAGES = [QUICKSTART, *(ROOT / "docs" / page for page in ("reference/cpp.md", "reference/errors.md"))]
PAGES += [ROOT / "docs/guides" / page for page in ("process_sets.md", "join.md")]

PRELUDE = """
#undef NDEBUG
#include <hvd/hvd.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <iostream>
#include <list>
#include <ranges>
#include <span>
#include <string_view>
#include <vector>
using namespace std::chrono_literals;
"""


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def without_detail(header):
    """Return the public part of a header."""
    return re.sub(
        r"^namespace (hvd::)?detail \{.*?^\}  // namespace \S*detail$", "", header.read_text(), flags=re.M | re.S
    )


def snippets():
    """Return the examples: comment lines indented by four more than text, and C++ blocks of the pages but for main."""
    found = []
    for header in HEADERS:
        for block in re.findall(r"(?:^ *//     .*\n(?: *//\n(?= *//     ))?)+", header.read_text(), flags=re.M):
            found.append(re.sub(r"^ *//( {5})?", "", block, flags=re.M))
    for page in PAGES:
        blocks = re.findall(r"```cpp\n(.*?)```", page.read_text(), flags=re.S)
        assert blocks, page
        found += [block for block in blocks if "int main" not in block]
    return found


def snippet_program():
    """Return a program that runs each example in a scope of its own, in a job unless the example joins itself."""
    functions, calls = [], []
    for number, code in enumerate(snippets()):
        functions.append(f"static void example_{number}() {{\n{code}\n}}\n")
        joins = re.search(r"hvd::(session|init)\b", code)
        # The barriers: ranks meet before they part. Otherwise the next init of one finds rank 0 still serving this one.
        calls.append(
            f"  hvd::shutdown();\n  {'' if joins else 'hvd::init(), hvd::barrier();'}\n  example_{number}();\n"
        )
        calls.append("  if (hvd::is_initialized()) hvd::barrier();\n")
    return PRELUDE + "".join(functions) + "int main() {\n" + "".join(calls) + '  std::cout << "ok\\n";\n}\n'


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Return where hvd is installed: not where it was installed to, for a prefix must be movable."""
    first = tmp_path_factory.mktemp("install")
    run("cmake", "--install", str(ROOT / "build/release"), "--prefix", str(first / "here"), "--component", "dev")
    return (first / "here").rename(first / "there")


@pytest.fixture(scope="module")
def programs(prefix):
    """Return the folder of programs built by find_package."""
    build = prefix.parent / "build"
    source = prefix.parent / "snippets.cc"
    source.write_text(snippet_program())
    command = ["cmake", "-G", "Ninja", "-S", str(ROOT / "tests/cpp_api"), "-B", str(build)]
    command += [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DSNIPPETS={source}", "-DCMAKE_BUILD_TYPE=Debug"]
    if shutil.which("ccache"):
        command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run(*command)
    run("cmake", "--build", str(build), env=dict(os.environ, CCACHE_BASEDIR=str(prefix.parent), CCACHE_NOHASHDIR="1"))
    return build


def test_what_is_installed(prefix):
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    assert {"lib/libhvd.so", "lib/pkgconfig/hvd.pc", "lib/cmake/hvd/hvdConfig.cmake"} <= files
    assert {str(header.relative_to(ROOT)) for header in [*HEADERS, ROOT / "include/hvd/hvd.h"]} <= files
    texts = [path.read_text() for path in (prefix / "lib").rglob("*") if path.suffix in (".cmake", ".pc")]
    assert not any(str(ROOT) in text or str(prefix.parent) in text for text in texts)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("program", ["api", "operations"])
def test_api(programs, program, ranks):
    assert spawn.run([str(programs / program)], ranks) == ["ok\n"] * ranks


def test_examples_in_headers_and_guide_run(programs):
    assert [output.splitlines()[-1] for output in spawn.run([str(programs / "snippets")], 2)] == ["ok", "ok"]


def test_every_public_function_has_an_example():
    functions = set()
    for header in HEADERS:
        functions |= set(re.findall(r"^[\w\[][\w\[\]:<>, ]* (\w+)\(", without_detail(header), flags=re.M))
    assert {"init", "rank", "allreduce", "allgather_async", "process_sets"} <= functions
    shown = set(re.findall(r"hvd::(\w+)\(", "".join(snippets())))
    assert functions - shown == set()


@pytest.mark.parametrize("ranks", [1, 2])
def test_hello(programs, ranks):
    outputs = spawn.run([str(programs / "hello/hello")], ranks)
    assert outputs == [f"rank {r} of {ranks}: the sum of all ranks is {ranks - 1}\n" for r in range(ranks)]


def test_hello_by_pkg_config(prefix, tmp_path):
    env = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "hvd", env=env))
    libdir = run("pkg-config", "--variable=libdir", "hvd", env=env).strip()
    program = tmp_path / "hello"
    source = str(ROOT / "examples/cpp/hello/hello.cc")
    run("c++", "-std=c++20", source, *flags, f"-Wl,-rpath,{libdir}", "-o", str(program))
    for ranks in (1, 2):
        assert f"sum of all ranks is {ranks - 1}\n" in spawn.run([str(program)], ranks)[0]


def test_the_guide_shows_the_hello_that_is_built():
    source = (ROOT / "examples/cpp/hello/hello.cc").read_text()
    assert source.split("\n", 1)[1] in QUICKSTART.read_text()


def test_digits_trains_as_in_python(programs, tmp_path):
    data = str(tmp_path / "digits.csv")
    run(sys.executable, str(ROOT / "examples/cpp/digits/write_digits.py"), data)
    python = run(sys.executable, str(ROOT / "examples/numpy/digits.py"))
    for ranks in (1, 2):
        output = spawn.run([str(programs / "digits/digits"), data], ranks)[0]
        assert output == python.replace("1 ranks", f"{ranks} ranks")


def test_ranks_in_cpp_and_in_python_meet(prefix, programs, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(
        "import horovod.numpy as hvd, numpy as np\n"
        "hvd.init()\n"
        "print(hvd.allreduce(np.int32(hvd.rank()), op=hvd.Sum, name='ranks'))\n"
    )
    choose = 'if [ "$HOROVOD_RANK" = 0 ]; then exec "$0"; else exec "$1" "$2"; fi'
    command = ["sh", "-c", choose, str(programs / "hello/hello"), sys.executable, str(script)]
    outputs = spawn.run(command, 2, env={"HVD_LIBRARY": str(prefix / "lib/libhvd.so")})
    assert outputs == ["rank 0 of 2: the sum of all ranks is 1\n", "1\n"]
