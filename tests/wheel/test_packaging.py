# SPDX-License-Identifier: Apache-2.0
"""Recipes and job files: they can be read, and name the version, the wheel and the files that the project has."""

import ast
import os
import pathlib
import re
import socket
import subprocess
import sys

import build_backend
import horovod
import make_wheel
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
CLUSTER = ROOT / "examples" / "cluster"
WHEEL = f"hvd-{horovod.__version__}-py3-none-{make_wheel.PLATFORM}.whl"
RECIPES = ["Dockerfile", "conda/meta.yaml", "spack/package.py", f"easybuild/hvd-{horovod.__version__}-gfbf-2023b.eb"]


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_short_and_of_this_version(name):
    text = (PACKAGING / name).read_text()
    assert len(text.splitlines()) <= 30
    assert WHEEL in text.replace("%(version)s", horovod.__version__)
    assert set(re.findall(r"\b\d+\.\d+\.\d+\b", text)) - {"3.11.5"} == {horovod.__version__}


def test_there_are_no_other_recipes():
    assert {str(path.relative_to(PACKAGING)) for path in PACKAGING.rglob("*") if path.is_file()} == set(RECIPES)


def test_the_dockerfile_copies_what_make_wheel_makes():
    text = (PACKAGING / "Dockerfile").read_text()
    copied = set(re.findall(r"dist/(\S+)", text))
    assert copied == {WHEEL, f"horovod-{horovod.__version__}-py3-none-any.whl", "SHA256SUMS"}
    assert (ROOT / ".dockerignore").read_text().splitlines()[1:] == ["*", "!dist/SHA256SUMS", "!dist/*.whl"]


def test_conda():
    recipe = yaml.safe_load((PACKAGING / "conda/meta.yaml").read_text())
    assert recipe["package"] == {"name": "hvd", "version": horovod.__version__}
    assert (PACKAGING / "conda" / recipe["source"]["path"]).resolve() == make_wheel.DIST
    assert {"numpy", "cloudpickle"} <= set(recipe["requirements"]["run"])
    assert f"__glibc >=2.{make_wheel.NEWEST_GLIBC}" in recipe["requirements"]["run"]


def test_spack():
    tree = ast.parse((PACKAGING / "spack/package.py").read_text())
    (package,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert package.name == "PyHvd"
    needed = {call.args[0].value for call in ast.walk(package) if _calls(call, "depends_on")}
    assert {"python@3.9:", "py-numpy", "py-cloudpickle"} <= needed


def _calls(node, name):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def test_easybuild():
    values: dict = {}
    exec((PACKAGING / RECIPES[3]).read_text(), values)  # an easyconfig is Python
    assert (values["name"], values["version"]) == ("hvd", horovod.__version__)
    assert RECIPES[3] == "easybuild/{name}-{version}-{toolchain[name]}-{toolchain[version]}.eb".format(**values)


def test_slurm():
    script = CLUSTER / "slurm.sh"
    subprocess.run(["bash", "-n", script], check=True, timeout=60)
    flags = set(re.findall(r"--[a-z-]+", re.search(r"^horovodrun .*", script.read_text(), flags=re.M)[0]))
    said = subprocess.run(["horovodrun", "--help"], capture_output=True, text=True, check=True, env=_path()).stdout
    assert flags <= set(re.findall(r"--[a-z-]+", said))


def _path():
    return dict(os.environ, PATH=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")


def test_kubernetes():
    service, job = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    values = {one["name"]: one["value"] for one in container["env"]}
    assert int(values["HOROVOD_SIZE"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    name = service["metadata"]["name"]
    assert spec["subdomain"] == name
    assert values["HOROVOD_RENDEZVOUS_ADDR"].startswith(f"{job['metadata']['name']}-0.{name}:")
    assert container["image"] == f"hvd:{horovod.__version__}"
    documented = (ROOT / "docs/reference/environment.md").read_text()
    assert all(f"`{variable}`" in documented for variable in [*values, "HOROVOD_RANK"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def test_the_ranks_of_kubernetes_find_each_other(tmp_path):
    text = (CLUSTER / "kubernetes.yaml").read_text()
    subprocess.run(re.search(r"#   (od .*? > token) &&", text)[1], shell=True, cwd=tmp_path, check=True)
    (container,) = list(yaml.safe_load_all(text))[1]["spec"]["template"]["spec"]["containers"]
    program = "import horovod.numpy as hvd; hvd.init(); print(hvd.allreduce(1.0, op=hvd.Sum, name='x'))"
    (tmp_path / "train.py").write_text(program)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    ranks = []
    for rank in range(2):
        own = tmp_path / f"own-{rank}"
        own.mkdir()
        places = {"/secret": tmp_path, "/tmp/token": own / "token", "/job": tmp_path}
        words = container["command"]
        for place, here in places.items():
            words = [word.replace(place, str(here)) for word in words]
        values = {one["name"]: one["value"] for one in container["env"]}
        values |= {"HOROVOD_SIZE": "2", "HOROVOD_RENDEZVOUS_ADDR": address, "HOROVOD_TOKEN_FILE": str(own / "token")}
        env = {**_path(), **values, "JOB_COMPLETION_INDEX": str(rank)}
        ranks.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True))
    assert [rank.communicate(timeout=120)[0] for rank in ranks] == ["2.0\n", "2.0\n"]


def test_pip_without_compiler_and_headers_says_which_packages(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", tmp_path]
    env = dict(os.environ, PATH=str(tmp_path))
    result = subprocess.run([*command, ROOT], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode != 0
    said = result.stdout + result.stderr
    assert "hvd cannot be built, because packages are missing: run `apt-get install g++ cmake " in said
    assert "or `dnf install gcc-c++ cmake " in said
    assert "Traceback" not in said


def test_a_compiler_without_cxx20_is_refused_with_its_own_words(tmp_path, monkeypatch):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho \"c++: error: unrecognized option '-std=c++20'\" >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(SystemExit, match=r"does not compile C\+\+20 \(c\+\+: error: unrecognized option"):
        build_backend.missing()


def test_the_packages_that_pip_names_are_those_of_setup():
    named = {debian for debian, _ in [*build_backend._PROGRAMS.values(), build_backend._COMPILER]}
    named |= {debian for debian, _ in build_backend._HEADERS.values()}
    listed = {line for line in (ROOT / "tools/debian-packages.txt").read_text().splitlines() if line[:1] not in "#"}
    assert named | {"ccache", "pkg-config", "python3-venv"} == listed
    assert build_backend.missing() == []
