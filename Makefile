# SPDX-License-Identifier: Apache-2.0
# A thin front of meson. `make` alone builds; `make run` and `make test` install what is missing first.
BUILD ?= build

.PHONY: all setup run test confined valgrind shared faults dist distcheck deb dist-arm64 distcheck-arm64 fuzz bench compare coverage format install clean

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD) programs

$(BUILD)/build.ninja:
	meson setup $(BUILD)

setup:
	@tools/setup test

run:
	@tools/setup run
	@$(MAKE) --no-print-directory all
	@tools/demo $(BUILD)/weir

test: setup
	@tests/run

# Again: each confinement of the engine alone, then sanitizers; under valgrind; below shared mounts. And faults, with
# a table of what they cost.
confined valgrind shared faults: setup
	@tests/run $@

# What is handed out, in dist/: the source, packages, and programs without a library. distcheck builds them twice, and
# looks at both; it tries them in bare root file systems of Debian's.
dist distcheck:
	@tools/setup dist
	@if [ $@ = dist ]; then tools/dist; else tools/setup test && tests/run dist; fi

# The Debian packages of it alone, in a fifth of the time.
deb:
	@tools/setup deb
	@tools/dist --deb

# For arm64, in a root file system of its own, build-arm64/. Needs root.
dist-arm64 distcheck-arm64:
	@tools/setup arm64
	@if [ $@ = dist-arm64 ]; then tools/dist-arm64; else tools/setup test && tests/run arm64; fi

fuzz: setup
	@tests/fuzz/run

bench: setup
	@$(MAKE) --no-print-directory all
	@tests/bench/run

# Beside other sandboxes, which it installs (npm, apt): the tables of docs/compatibility.md.
compare: setup
	@$(MAKE) --no-print-directory all
	@tests/compare/setup $(BUILD)/compare
	@tests/compare/compare.py --weir $(BUILD)/weir --peers $(BUILD)/compare

coverage: setup
	@tests/coverage

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

install: all
	meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-asan build-fuzz build-coverage
