# Opus: `make help` lists what there is. Each target does all its own set-up on a bare Debian 12.
BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
# Compiler warnings are errors in CI.
WERROR  ?= $(if $(CI),true,false)
JOBS    ?= $(shell nproc)

CONFIGURE = ./tools/configure.sh
# Each library as one unit: for who wants the programs and changes no source, and for CI. A folder that is there stays as it is.
AT_ONCE   = --new -Dunity_libs=true
RELEASE   = -Dbuildtype=release -Dlibdir=lib -Dwerror=$(WERROR)
# Line numbers, and little optimisation: what the sanitizers need, at half the time to compile.
SANITIZED = -Doptimization=1 -Ddebug=false -Dwerror=$(WERROR) -Db_lundef=false
# Checks of each pointer for null and alignment double the time to compile. AddressSanitizer sees null itself; `make fuzz`
# checks the decoders, where pointers come from outside, for both.
ADDRESS   = -Db_sanitize=address,undefined '-Dcpp_args=-g1 -fno-sanitize=null,alignment'
# ThreadSanitizer does not follow fences; ours stand between atomics, where there is nothing for it to report.
THREAD    = -Db_sanitize=thread '-Dcpp_args=-g1 -Wno-tsan'

.PHONY: help build configured configured-at-once programs test test-pytorch test-frameworks pytorch-table demo install clean sanitize sanitize-address sanitize-thread lint format fuzz bench gpu-bundle soak sweep abi paper

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

build: configured ## install what is missing, configure, compile everything, tests and benchmarks too (release)
	@ninja -C $(BUILD) -j $(JOBS) all benches

configured:
	@./tools/bootstrap.sh build
	@$(CONFIGURE) $(BUILD) $(if $(CI),$(AT_ONCE)) $(RELEASE)

configured-at-once:
	@./tools/bootstrap.sh build
	@$(CONFIGURE) $(BUILD) $(AT_ONCE) $(RELEASE)

programs: configured-at-once ## what jobs on emulated switches run, and no tests
	@echo "opus: compiling the programs and what they run on here, without the tests: about 2 minutes on 2 cores the first time"
	@ninja -C $(BUILD) -j $(JOBS) programs

demo: programs ## the main job: 16 ranks, 4 nodes, 4 emulated optical rails, with and without Opus
	@python3 tools/opus-demo --build $(BUILD)

sweep: programs ## the same job at 1 to 1000 ms of dark time: table, plot; 15 min, goes on when stopped (SWEEP=--quick: 4 min)
	@./tools/bootstrap.sh plot
	@/usr/bin/python3 tools/opus-sweep --build $(BUILD) $(SWEEP)  # Debian's own, which has its packages

test: configured-at-once ## every test; ends with "N passed, N failed"
	@./tools/bootstrap.sh bench model
	@ninja -C $(BUILD) -j $(JOBS)
	@python3 test/run.py $(BUILD)

test-pytorch: programs ## PyTorch's own wheel on emulated GPUs: each job of docs/examples/pytorch (installs PyTorch once, 5 GB)
	@./tools/bootstrap.sh pytorch
	@tools/pytorch.sh >/dev/null
	@python3 test/pytorch/pytorch_test.py $(BUILD)

test-frameworks: programs ## accelerate, Lightning, DeepSpeed, Megatron-core and torchtitan, from PyPI, on emulated GPUs (installs 6 GB once)
	@./tools/bootstrap.sh pytorch
	@tools/frameworks.sh >/dev/null
	@OPUS_FRAMEWORKS=1 python3 test/pytorch/pytorch_test.py $(BUILD) framework:

pytorch-table: programs ## what Opus costs PyTorch's jobs: docs/results/pytorch.md; hours, goes on when stopped (TABLE=--help: options)
	@./tools/bootstrap.sh pytorch
	@tools/pytorch.sh >/dev/null
	@python3 tools/pytorch-table --build $(BUILD) --page docs/results/pytorch.md $(TABLE)

sanitize: sanitize-address sanitize-thread ## the tests again under ASan+UBSan and under TSan

sanitize-address:
	@./tools/bootstrap.sh build
	@$(CONFIGURE) $(BUILD)-asan $(AT_ONCE) $(SANITIZED) $(ADDRESS)
	@ninja -C $(BUILD)-asan -j $(JOBS)
	@python3 test/run.py $(BUILD)-asan

sanitize-thread:
	@./tools/bootstrap.sh build
	@$(CONFIGURE) $(BUILD)-tsan $(AT_ONCE) $(SANITIZED) $(THREAD)
	@ninja -C $(BUILD)-tsan -j $(JOBS)
	@python3 test/run.py $(BUILD)-tsan

install: ## compile what is installed, and install it; PREFIX (default /usr/local) and DESTDIR are honoured
	@./tools/bootstrap.sh build
	@$(CONFIGURE) $(BUILD) $(AT_ONCE) $(RELEASE)
	@meson configure $(BUILD) --prefix $(abspath $(PREFIX))
	@ninja -C $(BUILD) -j $(JOBS) installed
	@meson install -C $(BUILD) --no-rebuild --quiet $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

lint: ## clang-format (no change wanted) and clang-tidy
	@./tools/bootstrap.sh build lint
	@$(CONFIGURE) $(BUILD) $(RELEASE)
	@./tools/lint.sh $(BUILD)

format: ## rewrite the sources with clang-format
	@./tools/bootstrap.sh lint
	@git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format -i

fuzz: ## fuzz every decoder (clang, libFuzzer); FUZZ_SECONDS each, default 60
	@./tools/bootstrap.sh build fuzz
	@CC=clang CXX=clang++ $(CONFIGURE) $(BUILD)-fuzz -Dbuildtype=debugoptimized -Dfuzz=true -Db_lundef=false
	@python3 test/fuzz/campaign.py $(BUILD)-fuzz

abi: ## the shim's hooks against the NCCL of public wheels, 2.18 to the newest (1.6 GB from PyPI, once; .deps/abi keeps 1 MB)
	@./tools/bootstrap.sh build
	@$(CONFIGURE) $(BUILD) $(RELEASE)
	@ninja -C $(BUILD) -j $(JOBS) shim/libopus_shim.so
	@python3 test/abi/wheels.py . $(BUILD)/shim/libopus_shim.so

bench: build ## the figures, as ratios in one run; writes bench-results/
	@./tools/bootstrap.sh bench
	@python3 test/bench/run.py $(BUILD)

soak: programs ## simulated schedules (SOAK_SCHEDULES, a million), random jobs (SOAK_WORKLOADS of each of four kinds, 2500), drawn training jobs (200), all of test/rails
	@ninja -C $(BUILD) -j $(JOBS) test/sim/opus_sim_test test/bench/bench_layered_jobs test/rails/rails_test
	@python3 test/sim/soak.py $(BUILD) --schedules $${SOAK_SCHEDULES:-1000000} --page docs/results/simulation.md
	@OPUS_RANDOM_WORKLOADS=$${SOAK_WORKLOADS:-2500} OPUS_RANDOM_JOURNAL=$(BUILD)/soak python3 test/process/random_test.py $(BUILD)
	@$(BUILD)/test/bench/bench_layered_jobs
	@OPUS_TEST_LONG=1 $(BUILD)/test/rails/rails_test
	@./tools/bootstrap.sh model
	@docs/model/scenarios.py
	@docs/model/scenarios.py --random $${SOAK_PROGRAMS:-100} 1 --features

gpu-bundle: ## a folder that runs on a machine with a GPU where nothing can be installed; BUNDLE, default build/gpu-bundle
	@./tools/bootstrap.sh build
	@$(CONFIGURE) $(BUILD) $(AT_ONCE) $(RELEASE)
	@ninja -C $(BUILD) -j $(JOBS) bundled
	@tools/gpu-bundle $(BUILD) $(or $(BUNDLE),$(BUILD)/gpu-bundle)

paper: configured ## the papers' tables and figures beside what opus-sim says: docs/results/paper.md; 3 minutes, nothing is measured
	@ninja -C $(BUILD) -j $(JOBS) tools/opus-sim/opus-sim tools/replay/opus-replay
	@python3 tools/opus-paper --build $(BUILD) --page docs/results/paper.md

clean: ## remove what was built (headers fetched into .deps/ stay)
	@rm -rf build build-* bench-results
