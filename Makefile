# SPDX-License-Identifier: Apache-2.0
# Two commands do everything: `make demo` and `make test`. Each prepares what it needs; see CONTRIBUTING.md.
PYTHON_VENV := .venv/bin/python
CXX_FILES = $(shell find src include tests tools benchmarks examples -name '*.h' -o -name '*.cc' -o -name '*.hpp' -o -name '*.c')

.PHONY: help setup build demo test test-cpp test-python test-versions bench bench-hosts lint format docs clean

help:
	@echo 'make setup   install missing packages, make .venv, build, install the package into .venv'
	@echo 'make demo    train a model on 1 and on 2 processes and compare'
	@echo 'make test    lint and all tests of the release build'
	@echo 'make test-versions   the same wheel with older releases of TensorFlow'
	@echo 'make bench   speed next to Open MPI, MPICH and Gloo'
	@echo 'make bench-hosts   speed between hosts, next to Open MPI and the network; needs root'
	@echo 'make lint    clang-format, ruff, layers          make format   apply the first two'
	@echo 'make docs    docs/env.md from the library        make clean    remove what was built'

setup:
	@tools/setup.sh

build:
	@cmake --preset release > /dev/null && cmake --build --preset release

demo:
	@tools/setup.sh install
	@$(PYTHON_VENV) tools/demo.py

lint: setup
	@clang-format-16 --dry-run -Werror $(CXX_FILES)
	@$(PYTHON_VENV) -m ruff check --quiet .
	@$(PYTHON_VENV) -m ruff format --check --quiet .
	@$(PYTHON_VENV) tools/check_layers.py

format: setup
	@clang-format-16 -i $(CXX_FILES)
	@$(PYTHON_VENV) -m ruff check --quiet --fix .
	@$(PYTHON_VENV) -m ruff format --quiet .

test: lint test-cpp test-python

test-cpp: setup
	@ctest --test-dir build/release --output-on-failure --timeout 600

test-python: setup
	@$(PYTHON_VENV) -m pytest

test-versions: setup
	@tests/versions/run.sh

bench: setup
	@tools/setup.sh packages tools/debian-packages-bench.txt
	@$(PYTHON_VENV) -m pip install --quiet --disable-pip-version-check --no-deps -r tools/requirements-bench.txt || \
	  echo 'bench: there will be no pictures, because matplotlib could not be installed'
	@$(PYTHON_VENV) benchmarks/run.py
	@$(PYTHON_VENV) benchmarks/training.py
	@$(PYTHON_VENV) benchmarks/startup.py
	@$(PYTHON_VENV) benchmarks/tensorflow_bench.py
	@$(PYTHON_VENV) benchmarks/upstream.py
	@$(PYTHON_VENV) benchmarks/goals.py

bench-hosts: setup
	@tools/setup.sh packages tools/debian-packages-bench.txt
	@$(PYTHON_VENV) benchmarks/hosts.py

docs: setup
	@$(PYTHON_VENV) tools/gen_env.py

clean:
	rm -rf build dist .venv .pytest_cache .ruff_cache .hypothesis
