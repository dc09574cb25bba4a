# make demo: from nothing to figures.   make test: lint, types and every test tier that this machine can run.
# Both install what they need first; PYTHON=/path/to/python3.12 says which Python, if `python3.11` is not on the path.
# make bench: what ddlbench costs beside its rivals, in an hour, as one table.
# make wheelhouse: all that an install fetches, in one folder; make install WHEELHOUSE=<that folder>: without a network.
# make install TORCH=site: with the PyTorch that PYTHON finds, as a module has it.
# make install GPU=1: for training on GPUs; HOROVOD=0: without Horovod.   make gpu-check: tests on a real GPU (DEVICE=cpu: without).
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STUDY := demo
PYTHON ?= python3.11
# Thousands of processes would each compile what they import.
unexport PYTHONDONTWRITEBYTECODE

# Tests at once: many wait for SLURM (four groups) or a silent rank, so four more than there are cores (eleven at most).
# Of those that `make test` alone runs few wait: two more. Each process first needs 10 CPU s to collect all tests.
WAIT = 4
test: WAIT = $(if $(MORE),4,2)
AT_ONCE ?= $(shell n=$$((`nproc` + $(WAIT))); echo $$((n < 11 ? n : 11)))

# Of all tests those whose names match: make test ONLY='resume and not horovod'.
ONLY :=
PYTEST = $(BIN)/python -m pytest -n $(AT_ONCE)$(if $(ONLY), -k "$(ONLY)")

.PHONY: again demo test test-more test-all lint ruff snakefmt mypy install gpu-check bench tensorflow docs clean wheelhouse

# As profiles/local has it, which Snakemake would name first.
demo: $(VENV)/.installed
	@$(BIN)/snakemake --workflow-profile none --cores all --keep-going --rerun-incomplete --quiet host reason --config study=$(STUDY)

# Each tier is represented. MORE=1: with the rest that is not slow, in one call, which makes what both need once.
MORE :=
test: lint
	@$(PYTEST) -m "$(if $(MORE),not slow,not more and not slow)"

# That rest alone: tests that are marked `more`.
test-more: $(VENV)/.installed
	@$(PYTEST) -m "more and not slow"

test-all: lint
	@echo "the slow tests too: the whole demo, time limits of SLURM, 100 jobs at once and more"
	@DDLBENCH_SLOW=1 $(PYTEST) --ignore tests/cuda_build

# Side by side: mypy takes half a minute on one core.
lint: $(VENV)/.installed
	@$(MAKE) --no-print-directory --jobs 2 --output-sync ruff snakefmt mypy

ruff:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

snakefmt:
	$(BIN)/snakefmt --check Snakefile workflow/Snakefile workflow/rules

mypy:
	$(BIN)/mypy

INSTALLED := $(VENV)/.installed$(if $(filter-out 0,$(GPU)),-gpu)
install: $(INSTALLED)

# HOROVOD=1 installs again where Horovod was left out, DALI where the other build is there, TORCH=site where it is not used.
ANEW := $(if $(filter 1,$(HOROVOD)),$(wildcard $(VENV)/.without-horovod))
ANEW += $(if $(DALI),$(filter-out $(DALI),$(shell cat $(VENV)/.installed-gpu 2>/dev/null)))
ANEW += $(if $(filter site,$(TORCH)),$(if $(wildcard $(VENV)/.torch-site),,$(wildcard $(VENV)/.installed)))
BESIDE := envs/wheelhouse.sh envs/axe.txt envs/docs.txt envs/readers.txt envs/Dockerfile envs/ddlbench.def
$(VENV)/.installed $(VENV)/.installed-gpu: $(filter-out $(BESIDE),$(wildcard envs/*)) pyproject.toml $(if $(strip $(ANEW)),again)
	@envs/install.sh

wheelhouse: $(INSTALLED)
	@envs/wheelhouse.sh wheelhouse

# What ddlbench costs beside its rivals: a table, within an hour, on a machine that does nothing else.
bench: $(VENV)/.installed
	@$(BIN)/python bench/every.py

# It installs nothing: what it lacks, its summary says. CHECK has further options of pytest, as `-k native` or `-n 8`.
DEVICE ?= cuda
CHECK_PYTHON := $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)
gpu-check:
	@$(CHECK_PYTHON) -c "import crc32c, pandas, psutil, pyarrow, pydantic, pytest, scipy, timm, torch" || { echo "gpu-check installs nothing, and $(CHECK_PYTHON) lacks this; \
	    make install GPU=1 brings it" >&2; exit 1; }
	@DDLBENCH_GPU_TIER=$(DEVICE) DDLBENCH_SLOW=1 $(CHECK_PYTHON) -m pytest -q -r N -p no:cacheprovider tests/gpu \
	    $(if $(filter cuda,$(DEVICE)),tests/pretended_gpu) $(CHECK)

# Readers of TFRecords that are not ours, in an environment of their own (1.6 GB): a tier of tests, and bench/data.py.
READERS := $(or $(DDLBENCH_READERS),$(HOME)/.cache/ddlbench/tensorflow-venv)
tensorflow:
	$(PYTHON) -m venv "$(READERS)"
	"$(READERS)/bin/python" -m pip --disable-pip-version-check install -q -r envs/readers.txt

# The docs as a site, site/html/index.html. What git knows is copied beside it, so that links to files work there too.
DOCS := $(or $(DDLBENCH_DOCS),$(HOME)/.cache/ddlbench/docs-venv)
docs:
	@[ "$(DOCS)/installed" -nt envs/docs.txt ] || { $(PYTHON) -m venv "$(DOCS)" && "$(DOCS)/bin/python" -m pip \
	    --disable-pip-version-check install -q -r envs/docs.txt && touch "$(DOCS)/installed"; }
	@rm -rf site && mkdir -p site/source
	@git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t site/source
	@NO_MKDOCS_2_WARNING=1 "$(DOCS)/bin/mkdocs" build --quiet --strict
	@echo "site/html/index.html; its search needs a server: python3 -m http.server --directory site/html"

clean:
	rm -rf $(VENV) site .snakemake .mypy_cache .ruff_cache .pytest_cache
