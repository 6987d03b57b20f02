PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN = $(VENV)/bin
CUDA_PYTHON ?= $(BIN)/python

.PHONY: test test-kernels test-oldest test-ports test-libraries test-runtimes runtimes test-cuda test-page release docs as-run ports sweep fixes first-try tried fuzz nightly lint demo bench clean
.DEFAULT_GOAL := test

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(CONSTRAINTS) --editable . --group test
	-$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib  # on all cores; else each process that a test starts compiles torch anew
	touch $@

$(VENV)/.linters: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --group lint
	touch $@

# Tests that take long, and of which another one holds most, are left to the nightly run, which runs these alone.
SOON ?= -m "not nightly"

test: $(VENV)/.installed  ## set up and run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal $(SOON)

test-oldest:  ## the tests on the oldest versions that pyproject.toml admits
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt

# Beside the test environment, not in it: the other tests are to see what a user has.
$(VENV)/.ports: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --upgrade --target $(VENV)/ports --group ports
	touch $@

# Where rounding decides: no verdict may hang on how a machine's kernels round. `make test` runs these tests with the kernels
# of this processor and as many threads as it has, `make nightly` all tests with other kernels.
KERNELS = $(wildcard $(patsubst %,tests/integration/test_%.py,catalogue golden_floors padding_clean) \
	$(patsubst %,tests/unit/test_%.py,blame* floors noise weights))

test-kernels: $(VENV)/.installed  ## where rounding decides, with other kernels and one thread
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(SOON) $(KERNELS)

test-ports: $(VENV)/.ports  ## third-party ports against their references
	PYTHONPATH=$(abspath $(VENV))/ports $(BIN)/python -m pytest -n 2 --dist loadscope tests/ports

$(VENV)/.libraries: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --upgrade --target $(VENV)/libraries --group libraries
	touch $@

test-libraries: $(VENV)/.libraries  ## models of peft, torchao, diffusers and torchvision
	PYTHONPATH=$(abspath $(VENV))/libraries $(BIN)/python -m pytest -n 2 tests/libraries

$(VENV)/.runtimes: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --upgrade --target $(VENV)/runtimes --group runtimes
	touch $@

test-runtimes: $(VENV)/.runtimes  ## what ONNX, MLX and JAX compute, held to transformers' models
	PYTHONPATH=$(abspath $(VENV))/runtimes $(BIN)/python -m pytest -n 2 tests/runtimes

runtimes: $(VENV)/.runtimes  ## how many ports of mlx-lm are quiet, and how many random edits are named
	PYTHONPATH=$(abspath $(VENV))/runtimes:utils $(BIN)/python utils/runtimes/mlx_corpus.py
	PYTHONPATH=$(abspath $(VENV))/runtimes:utils $(BIN)/python utils/runtimes/mlx_corpus.py --edits 100
	PYTHONPATH=$(abspath $(VENV))/runtimes:utils $(BIN)/python utils/runtimes/onnx_mutants.py

test-cuda: $(VENV)/.installed  ## models on a CUDA device; CUDA_PYTHON= of an environment whose torch was built for it
	@$(CUDA_PYTHON) -c "import torch; torch.cuda.is_available() or exit('make test-cuda: torch sees no CUDA device here.')"
	$(CUDA_PYTHON) -m pytest tests/cuda

$(VENV)/.page: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --upgrade --target $(VENV)/page --group page
	command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	touch $@

test-page: $(VENV)/.page  ## the pages of --tf-html in a real browser; TFDEBUG_PICTURES=1 renews the pictures in docs/
	PYTHONPATH=$(abspath $(VENV))/page $(BIN)/python -m pytest tests/page

as-run: $(VENV)/.installed  ## the table of docs/as-run.md, from the tests that hold it
	$(BIN)/python utils/as_run_table.py

ports: $(VENV)/.ports  ## the table of what is named in them
	PYTHONPATH=$(abspath $(VENV))/ports $(BIN)/python utils/accuracy.py --ports

sweep: $(VENV)/.ports $(VENV)/.runtimes  ## which fields of configurations matter, and which ports of other people ignore
	$(BIN)/python utils/sweep.py alone
	$(BIN)/python utils/sweep.py blind
	PYTHONHASHSEED=0 PYTHONPATH=$(abspath $(VENV))/ports:$(abspath $(VENV))/runtimes $(BIN)/python utils/sweep.py ports # ibm-fms loads by the order of a set

$(VENV)/.unseen $(VENV)/.tried: $(VENV)/.%: $(VENV)/.ports
	rm -rf $(VENV)/$* # a set that was unseen is tried later; a folder that two packages have is kept as the first leaves it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --ignore-requires-python --target $(VENV)/$* --group $*
	touch $@

$(VENV)/.fixes: $(VENV)/.ports
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --upgrade --target $(VENV)/fixes --group fixes
	touch $@

fixes: $(VENV)/.fixes  ## real fixes of libraries, reverted: CLONES=folder with a clone of each
	PYTHONPATH=$(abspath $(VENV))/fixes:$(abspath $(VENV))/ports $(BIN)/python utils/real_fixes.py $(CLONES)

first-try: $(VENV)/.unseen  ## random edits of ports that the tool was not built on
	PYTHONPATH=$(abspath $(VENV))/unseen:$(abspath $(VENV))/ports $(BIN)/python utils/first_try.py

tried: $(VENV)/.tried  ## the same of ports that were such once
	PYTHONPATH=$(abspath $(VENV))/tried:$(abspath $(VENV))/ports $(BIN)/python utils/first_try.py --set tried

fuzz: $(VENV)/.installed  ## the property tests on other examples in each run, and on twenty times as many
	$(BIN)/python -m pytest -n 2 -m hypothesis --hypothesis-profile=fuzz

nightly: fuzz bench release  ## what takes too long for every change
	$(BIN)/python utils/accuracy.py
	$(BIN)/python utils/first_try.py --set copies --edits 10
	$(BIN)/python utils/architectures.py
	$(BIN)/python utils/harden.py
	$(MAKE) ports
	$(MAKE) test SOON="-m nightly"
	$(MAKE) test-kernels SOON= KERNELS="tests/unit tests/integration"

release: $(VENV)/.installed  ## build the sdist and the wheel of it, install that, and try what a user tries
	$(BIN)/python utils/release.py

docs: $(VENV)/.docs  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --group docs
	touch $@

lint: $(VENV)/.linters  ## ruff, mypy strict, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

DEMO = $(BIN)/python -m pytest fixtures/demo -q -p no:cacheprovider --tf-golden-dir=demo-output

demo: $(VENV)/.installed  ## record a golden of a reference, run a port without a bug and with one, show the report
	$(DEMO) --tf-golden=update
	$(DEMO)
	! TFDEMO_BUG=1 $(DEMO)

.venv-bench/.installed: pyproject.toml constraints.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group bench
	touch $@

bench: .venv-bench/.installed  ## every claim about speed beside the peers; fails if a budget is exceeded
	.venv-bench/bin/python utils/bench.py --check

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
