# SPDX-License-Identifier: Apache-2.0
"""The website, built once."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the website; a warning of MkDocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    env = dict(os.environ, NO_MKDOCS_2_WARNING="1")
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=170, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder
