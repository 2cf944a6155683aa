# make demo    build, load the sample, serve it, search it; then serve until Ctrl-C
# make test    all tests
# make build   the binary only
# make help    this list and more

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bireme
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(HOME)/.cargo/bin:$(PATH)
export CARGO_TERM_PROGRESS_WHEN ?= auto
# One profile, and always the whole workspace, for demo, tests and CI: a part of it would ask for other
# features of shared dependencies, and Lance would be compiled once more. A release is of the binary alone: the
# workspace's tokio has what tests need.
BIREME := $(CARGO_TARGET_DIR)/debug/bireme
# All of WordNet in place of the sample, where it is at hand: the tests then look up each synset.
WORDNET ?= $(abspath $(wildcard ../shared/data/wordnet.parquet))
SAY := @printf '\033[1m[make]\033[0m %s\n'

# The benchmarks': what of it to run (tables, rounds, instructions, keys, cache, telemetry, report), and how much; of
# the network's matrix, faults, lists, many, report.
PIECES ?=
PROFILE ?= small
BENCH := $(CACHE)/bench/bin

# The soak's: for how long the simulation runs, how often a node is killed, how many seeds of a filler's crashes, and
# how many times as many cases the fuzzers run.
MINUTES ?= 10
KILLS ?= 1000
SEEDS ?= 5000
TIMES ?= 100
# The simulation's: which seed to repeat.
SEED ?= 0
SIMULATION := cargo test --locked --workspace --test seeds

# What attacks reported, for docs/security.md.
ATTACKS := $(CACHE)/attacks
ATTACK = BIREME_S3_SERVER=$(CACHE)/s3/bin/moto_server cargo test --locked --workspace --test attacks

# The binary that goes into images.
IMAGE ?= $(CACHE)/bireme.tar
# The cluster's: which steps (all), and what of it to keep.
STEPS ?=

.PHONY: help demo build release test attacks soak seed bench network image loadtest chart chart-readme chart-dashboards dashboards e2e-kubernetes e2e-short fmt lint deny clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## load the sample, serve it on loopback, search it; ONCE=1 stops after the showing
	@BIREME=$(BIREME) ONCE=$(ONCE) services/bireme/demo/run.sh

build: ## build the binary, as demo and tests use it
	@.ci/setup build rust
	$(SAY) "building bireme$(if $(wildcard $(CARGO_TARGET_DIR)/debug/deps/liblance-*.rlib),,: the first time this compiles Lance, about 15 minutes on 2 cores)"
	@cargo build --locked --workspace
	$(SAY) "built $(BIREME)"

release: ## build the binary for use and for benchmarks: slower to build, faster
	@.ci/setup build rust
	$(SAY) "building bireme for speed; the first time this takes about 42 minutes on 2 cores"
	@cargo build --release --locked -p bireme
	$(SAY) "built $(CARGO_TARGET_DIR)/release/bireme"

bench: release ## measure beside fio, pylance and pyarrow, into docs/benchmarks; PROFILE=large, PIECES=rounds
	@.ci/setup bench
	$(SAY) "measuring, as root: it drops the page cache; about 20 minutes"
	@cd loadtest && PATH="$(BENCH):$$PATH" python -m bench --bireme $(CARGO_TARGET_DIR)/release/bireme \
		--profile $(PROFILE) --output ../docs/benchmarks $(PIECES)

network: release ## both tiers on a network of their own, as root: cost by nodes, faults, bad lists; PIECES=faults
	@.ci/setup network
	$(SAY) "measuring in network namespaces, as root; about 20 minutes"
	@cd loadtest && python3 -m network --bireme $(CARGO_TARGET_DIR)/release/bireme --output ../docs/benchmarks $(PIECES)

test: ## run all tests, on a real drive, a real S3 server and real sockets
	@.ci/setup build rust s3
	$(SAY) "building and running the tests"
	@BIREME_S3_SERVER=$(CACHE)/s3/bin/moto_server BIREME_WORDNET=$(WORDNET) cargo test --locked --workspace

attacks: release ## attack both nodes, as the development and the release build, and write docs/security.md
	@.ci/setup build rust s3
	$(SAY) "attacking the development build, then the release build; loads are bounded and stay on 127.0.0.1"
	@mkdir -p $(ATTACKS) && rm -f $(ATTACKS)/*.jsonl
	@BIREME_ATTACKS_RESULTS=$(ATTACKS)/development.jsonl $(ATTACK)
	@BIREME_ATTACKS_RESULTS=$(ATTACKS)/release.jsonl BIREME_ATTACKED=$(CARGO_TARGET_DIR)/release/bireme $(ATTACK)
	@cd loadtest && python3 -m attacks --development $(ATTACKS)/development.jsonl \
		--release $(ATTACKS)/release.jsonl --output ../docs/security.md

soak: ## simulate new seeds for MINUTES (10), kill a node KILLS times (1000), crash its filler by SEEDS seeds (5000), fuzz TIMES (100) as long
	@.ci/setup build rust
	$(SAY) "simulating I/O nodes for $(MINUTES) minutes; a seed that fails is named"
	@BIREME_MINUTES=$(MINUTES) $(SIMULATION) whatever -- --nocapture
	$(SAY) "killing a node $(KILLS) times, about 10 minutes; crashing simulated drives by $(SEEDS) seeds"
	@BIREME_KILLS=$(KILLS) cargo test --locked --workspace --test cli killed -- --nocapture
	@BIREME_SEEDS=$(SEEDS) cargo test --locked --workspace --lib crash -- --nocapture
	$(SAY) "fuzzing all that is read from drives and wires, $(TIMES) times as long as the tests do, from a new seed"
	@BIREME_FUZZ_SEED=$$(date +%s) BIREME_FUZZ_TIMES=$(TIMES) cargo test --locked --workspace fuzz_

seed: ## show what happens in the simulation of one seed: SEED=17
	@BIREME_SEEDS=$(SEED)..$$(($(SEED) + 1)) BIREME_TRACE=1 $(SIMULATION) whatever -- --nocapture

image: release ## make an image of the binary without a daemon, for containerd, Docker or Podman to load
	@.ci/setup image
	$(SAY) "making $(IMAGE)"
	@helm/image/build $(CARGO_TARGET_DIR)/release/bireme bireme:$$(sed -n 's/^appVersion: "\(.*\)"/\1/p' helm/bireme/Chart.yaml) $(IMAGE)

loadtest: build ## load on both tiers with k6, a few seconds each; SCENARIOS="search get"
	@.ci/setup k6
	@BIREME=$(BIREME) loadtest/k6/run $(SCENARIOS)

chart: ## check the chart: lint, templates, alerts, dashboards, schemas, its README, and a dry run by a real API server
	@.ci/setup helm apiserver prometheus
	@helm/check

chart-readme: ## write the chart's README anew from its values
	@.ci/setup helm
	@cd helm && $(CACHE)/kubernetes/bin/helm-docs --chart-search-root bireme

dashboards: build ## ask every query of dashboards, alerts and runbooks of a real Prometheus over nodes under load
	@.ci/setup s3 prometheus
	@cd helm && BIREME_E2E_RUN=dashboards python3 -m watch --bireme $(BIREME)

chart-dashboards: ## write the chart's dashboards anew from helm/dashboards
	@cd helm && python3 -m dashboards

e2e-kubernetes: release ## the chart on a real Kubernetes, on this machine, as root; STEPS="scale-io restart-io"
	@.ci/setup image helm k6 kubernetes prometheus
	@cd helm && python3 -m e2e --bireme $(CARGO_TARGET_DIR)/release/bireme $(STEPS)

e2e-short: build ## a few minutes of that, with the binary that tests use: install, search, each tier up and down, uninstall
	@.ci/setup image helm k6 kubernetes
	@helm/e2e/short $(BIREME)

fmt: ## format the code
	@cargo fmt --all

lint: ## formatting and clippy, warnings denied
	@.ci/setup build rust
	@cargo fmt --all -- --check
	@cargo clippy --locked --workspace --all-targets -- -D warnings

deny: ## check licenses and sources of all dependencies
	@.ci/setup deny
	@PATH="$(CACHE)/deny/bin:$$PATH" cargo deny --locked --config .ci/deny.toml check bans licenses sources

clean: ## forget build output, the demo's table and its cache
	rm -rf "$(CARGO_TARGET_DIR)" "$(CACHE)/demo" "$(CACHE)/up"
