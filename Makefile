# SPDX-License-Identifier: Apache-2.0
# Two commands do everything: `make demo` and `make test`. Each prepares what it needs; see CONTRIBUTING.md.
PYTHON_VENV := .venv/bin/python
CXX_FILES = $(shell find src include tests tools benchmarks examples -name '*.h' -o -name '*.cc' -o -name '*.hpp' -o -name '*.c')

.PHONY: help setup build demo wheel test clear-times test-cpp test-python test-wheel test-versions campaign campaign-operations test-heap bench bench-hosts lint lint-only format docs clean

help:
	@echo 'make setup   install missing packages, make .venv, build, install the package into .venv'
	@echo 'make demo    train a model on 1 and on 2 processes and compare'
	@echo 'make wheel   dist/: the wheel for clusters, its debug information, checksums'
	@echo 'make test    lint and all tests of the release build'
	@echo 'make suite-NAME   the tests of tests/NAME alone, such as make suite-security'
	@echo 'make test-wheel   the tests of TensorFlow and Keras against the wheel that make wheel makes'
	@echo 'make test-versions   the same wheel with older releases of TensorFlow'
	@echo 'make campaign   2000 faults of all kinds, FAULTS=n SEED=s for others; needs root'
	@echo 'make campaign-operations   100000 random operations on 2, 3, 4 and 8 ranks, equal bit by bit'
	@echo 'make test-heap   all Python tests and 200 faults on the arena heap'
	@echo 'make bench   speed next to Open MPI, MPICH and Gloo'
	@echo 'make bench-hosts   speed between hosts, next to Open MPI and the network; needs root'
	@echo 'make lint    clang-format, ruff, layers, comments, links   make format   apply the first two'
	@echo 'make docs    generated pages, and the website in build/site      make clean    remove what was built'

setup:
	@tools/timed setup tools/setup.sh

build:
	@cmake --preset release > /dev/null && cmake --build --preset release

demo:
	@tools/setup.sh install
	@$(PYTHON_VENV) tools/demo.py

wheel:
	@tools/setup.sh wheel
	@$(PYTHON_VENV) tools/make_wheel.py

lint: setup
	@tools/timed lint $(MAKE) --no-print-directory lint-only

lint-only:
	@clang-format-16 --dry-run -Werror $(CXX_FILES)
	@$(PYTHON_VENV) -m ruff check --quiet .
	@$(PYTHON_VENV) -m ruff format --check --quiet .
	@$(PYTHON_VENV) tools/check_layers.py
	@$(PYTHON_VENV) tools/check_comments.py
	@$(PYTHON_VENV) tools/check_links.py

format: setup
	@clang-format-16 -i $(CXX_FILES)
	@$(PYTHON_VENV) -m ruff check --quiet --fix .
	@$(PYTHON_VENV) -m ruff format --quiet .

test: clear-times lint test-cpp test-python
	@$(PYTHON_VENV) tools/times.py

clear-times:
	@rm -rf build/times

test-cpp: setup
	@tools/timed 'C++ tests' ctest --test-dir build/release -j 4 --output-on-failure --timeout 600 \
	  --output-junit $(CURDIR)/build/times/cpp.xml

test-python: setup
	@tools/timed 'Python tests' $(PYTHON_VENV) -m pytest --junitxml build/times/python.xml

suite-%: setup
	@tools/suite.sh $*

FAULTS = 2000
OPERATIONS = 100000
SEED = 1

campaign: setup
	@$(PYTHON_VENV) -m horovod.chaos --extended --faults $(FAULTS) --seed $(SEED)

campaign-operations: setup
	@for ranks in 2 3 4 8; do \
	  .venv/bin/horovodrun -np $$ranks $(PYTHON_VENV) tests/python/random_ops.py --ops $(OPERATIONS) --seed $(SEED) || exit; \
	done

test-heap: setup
	@export LD_PRELOAD=$$($(PYTHON_VENV) -m horovod.heap) && $(PYTHON_VENV) -m pytest && \
	  $(PYTHON_VENV) -m horovod.chaos --faults 200 --seed $(SEED)

test-wheel: setup wheel
	@tools/test_wheel.sh

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
	@$(PYTHON_VENV) tools/gen_horovodrun.py
	@$(PYTHON_VENV) tools/gen_errors.py
	@python=$$(tools/suite.sh --python docs) && NO_MKDOCS_2_WARNING=1 $$python -m mkdocs build --quiet --strict
	@echo 'docs: build/site is made; to read it: python3 -m http.server --directory build/site'

clean:
	rm -rf build dist .venv .pytest_cache .ruff_cache .hypothesis
