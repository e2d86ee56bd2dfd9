# make demo: set up and run the main job on the tiny pair. make test: set up and pass the tests.
# make benchmarks: measure what BENCHMARKS.md shows and write it (only="tiny 9b": these sections; about 55 minutes for all).
# make browser-test: the web page in Chromium and the clients of other languages. make reference, make recording: REFERENCE.md, the chat in README.md. make sanitize: a short tour of the C++ under sanitizers. make lint: what a change must pass besides. PYTHON=python3.12 chooses the interpreter.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TINY   := models/tiny
OUT    := build/demo
# one pinned set for tests, so that they mean the same everywhere; users get the lower bounds of pyproject.toml
PINS   := tests/constraints.txt
PROMPT ?= The box of Talu holds 79 pears. The next day Talu breaks 46 pears. After that, Talu gets another 95. Find how many pears Talu has now.

.PHONY: demo test clients browser-test benchmarks sanitize lint format clean
.DEFAULT_GOAL := test

# llama.cpp is compiled once, here, and _core is built against that very copy
$(BIN)/dflash-gguf: pyproject.toml $(wildcard cpp_ext/* dflash_gguf/*.py dflash_gguf/*/*.py dflash_gguf/serve/page/* convert/*.py)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --constraint $(PINS) llama-cpp-python==0.3.36 scikit-build-core pybind11 cmake ninja
	$(BIN)/python -m pip install --constraint $(PINS) --no-build-isolation .
	touch $@

demo: $(BIN)/dflash-gguf
	$(BIN)/dflash-gguf convert $(TINY)/draft/model.safetensors --target $(TINY)/target.gguf --outdir $(OUT) --force
	@echo "--- with the drafter"
	$(BIN)/dflash-gguf run --target $(TINY)/target.gguf --draft $(OUT)/tiny-draft-BF16.gguf -p "$(PROMPT)"
	@echo "--- without"
	$(BIN)/dflash-gguf run --target $(TINY)/target.gguf --no-draft -p "$(PROMPT)"

$(BIN)/pytest: $(BIN)/dflash-gguf
	$(BIN)/python -m pip install --constraint $(PINS) --no-build-isolation --group test '.[hub,reference]'
	$(BIN)/python -m pip install --no-deps dflash==0.1.0 # the reference: its client needs little of what it asks for
	touch $@

test: $(BIN)/pytest
	$(BIN)/pytest -n 2

# what the tests of the web page and of the npm client need; without it they are skipped, and say so
clients: tests/clients/node_modules
tests/clients/node_modules: tests/clients/package-lock.json
	cd tests/clients && npm ci --no-audit --no-fund
	touch $@

# these tests, and nothing of what they need may be missing: node of version 20 or newer, npm, Chromium
browser-test: $(BIN)/pytest clients
	CLIENTS_REQUIRED=1 $(BIN)/pytest tests/clients

# what the command line takes, as the program itself says it, and a chat as it looks
reference: $(BIN)/dflash-gguf
	$(BIN)/python -P tests/regenerate_reference.py

recording: $(BIN)/pytest
	$(BIN)/python -P benchmarks/record_chat.py models/tiny/chat.svg

# mainline's server, from the source that llama-cpp-python packages, unless LLAMA_SERVER names one that is built
MAINLINE := build/mainline
BUILT    := $(MAINLINE)/build/bin/llama-server
$(BUILT): $(BIN)/dflash-gguf
	$(BIN)/python -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest $(MAINLINE) llama-cpp-python==0.3.36
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python benchmarks/mainline.py $(MAINLINE)/*.tar.gz $(MAINLINE) llama-server

benchmarks: $(BIN)/pytest $(if $(LLAMA_SERVER),,$(BUILT))
	$(BIN)/python benchmarks/report.py --server $(or $(LLAMA_SERVER),$(BUILT)) $(only)

# the extension under gcc's AddressSanitizer and UndefinedBehaviorSanitizer, in a folder of its own. Python does not
# give back all it takes, so that leaks are not looked for: benchmarks/soak.py does.
SANITIZED := build/sanitize
RUNTIME   := $(shell $(CXX) -print-file-name=libasan.so) $(shell $(CXX) -print-file-name=libstdc++.so)
sanitize: $(BIN)/pytest
	$(BIN)/cmake -S cpp_ext -B $(SANITIZED)/core -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug \
	    -DDFLASH_SANITIZE=ON -DCMAKE_CXX_COMPILER=$(CXX) -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	    -Dpybind11_DIR="$$($(BIN)/python -m pybind11 --cmakedir)"
	$(BIN)/cmake --build $(SANITIZED)/core
	rm -rf $(SANITIZED)/dflash_gguf && cp -r dflash_gguf $(SANITIZED)/ && cp -r convert $(SANITIZED)/dflash_gguf/convert
	rm -f $(SANITIZED)/dflash_gguf/_core*.so && cp $(SANITIZED)/core/_core*.so $(SANITIZED)/dflash_gguf/
	LD_PRELOAD="$(RUNTIME)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    PYTHONPATH=$(SANITIZED) $(BIN)/python -P tests/sanitized.py

$(BIN)/ruff: $(BIN)/dflash-gguf
	$(BIN)/python -m pip install --constraint $(PINS) --group lint
	touch $@

# mypy sees the package as it is installed: convert/ inside dflash_gguf/, and the scripts beside it
lint: $(BIN)/ruff
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror cpp_ext/*.cpp cpp_ext/*.h
	rm -rf build/types && mkdir -p build/types
	cp -r dflash_gguf build/types/ && cp -r convert build/types/dflash_gguf/convert
	MYPYPATH=build/types $(BIN)/mypy --config-file pyproject.toml build/types/dflash_gguf models/make_tiny benchmarks

format: $(BIN)/ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i cpp_ext/*.cpp cpp_ext/*.h

clean:
	rm -rf build $(VENV)
