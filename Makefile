# make            set up .venv, fetch one real model and optimize it
# make test       lint, types and the quick tests; this is what .ci/run does
# make test-all   the slow tests too
# make bench      optimize every network and model of the corpus, write bench/results/
# make lint       ruff and mypy only
# make clean      remove .venv and everything built

PYTHON ?= python3
BIN := .venv/bin
# The runtime that fits this machine. onnxruntime and onnxruntime-gpu must never be installed together.
RUNTIME ?= $(shell if [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; then echo gpu; else echo cpu; fi)
INSTALLED := .venv/installed-$(RUNTIME)
MODEL := rapidocr-onnxruntime__ch_PP-OCRv4_det_infer

.PHONY: demo venv test test-all bench lint clean
.DELETE_ON_ERROR:

demo: build/corpus/$(MODEL).onnx
	$(BIN)/taso optimize $< -o build/ppocr_det_optimized.onnx --input-shape x:1,3,320,320 --time-budget 180

build/corpus/%.onnx: $(INSTALLED) bench/corpus.py bench/corpus.json
	$(BIN)/python -m bench.corpus --out build/corpus $*
	@touch $@

venv: $(INSTALLED)

$(INSTALLED): setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "taso needs Python 3.11 or newer; say make PYTHON=...")'
	$(PYTHON) -m venv .venv
	@ls .venv/installed-* >/dev/null 2>&1 && [ ! -e $@ ] && \
	    $(BIN)/python -m pip uninstall -q -y onnxruntime onnxruntime-gpu || true
	@rm -f .venv/installed-*
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[$(RUNTIME),test]'
	@touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy taso bench

test: lint
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -q -n 2

bench: $(INSTALLED)
	$(BIN)/python -m bench.optimize_all

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
