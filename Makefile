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
# Demo, tests and CI use one profile and always build the whole workspace: a part of it selects other features of shared
# dependencies, and Lance would be compiled once more. A release builds only the binary, because the workspace's tokio
# has features that only tests need.
BIREME := $(CARGO_TARGET_DIR)/debug/bireme
# All of WordNet in place of the sample, if the file exists; the tests then look up each synset.
WORDNET ?= $(abspath $(wildcard ../shared/data/wordnet.parquet))
SAY := @printf '\033[1m[make]\033[0m %s\n'

# The pieces to run (make bench: tables, rounds, limits, instructions, keys, lookups, searches, cache, telemetry,
# attacks, access, fairness, clients, store, changes, tuned, publishing, report; make network: matrix, faults, lists,
# many, report), and the benchmarks' profile.
PIECES ?=
PROFILE ?= small
BENCH := $(CACHE)/bench/bin

# The soak's minutes of simulation, number of times that a node is killed, number of seeds for crashes of a filler, and
# factor on the fuzzers' cases.
MINUTES ?= 10
KILLS ?= 1000
SEEDS ?= 5000
TIMES ?= 100
# The simulation's seed to repeat.
SEED ?= 0
SIMULATION := cargo test --locked --workspace --test seeds

# The folder for the reports of the attacks, from which docs/security.md is made.
ATTACKS := $(CACHE)/attacks
ATTACK = BIREME_S3_SERVER=$(CACHE)/s3/bin/moto_server cargo test --locked --workspace --test attacks

# The image's archive.
IMAGE ?= $(CACHE)/bireme.tar
# The end-to-end test's steps (all by default).
STEPS ?=

.PHONY: help demo build release test python python-fmt protos protos-baseline attacks soak seed bench network image loadtest lancedb lancedb-java lancedb-rust lancedb-tests chart chart-readme chart-dashboards dashboards e2e-kubernetes e2e-short fmt lint deny aarch64 clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## load the sample, serve it on loopback, search it; ONCE=1 exits afterwards
	@BIREME=$(BIREME) ONCE=$(ONCE) services/bireme/demo/run.sh

build: ## build the workspace for the demo and the tests
	@.ci/setup build rust
	$(SAY) "building bireme$(if $(wildcard $(CARGO_TARGET_DIR)/debug/deps/liblance-*.rlib),,: the first time this compiles Lance, about 15 minutes on 2 cores)"
	@cargo build --locked --workspace
	$(SAY) "built $(BIREME)"

release: ## build the optimised binary, for use and for benchmarks
	@.ci/setup build rust
	$(SAY) "building the optimised bireme; the first time this takes about 42 minutes on 2 cores"
	@cargo build --release --locked -p bireme
	$(SAY) "built $(CARGO_TARGET_DIR)/release/bireme"

bench: release ## measure beside fio, pylance and pyarrow, into docs/benchmarks; PROFILE=large, PIECES=rounds
	@.ci/setup bench lancedb $(if $(filter store,$(PIECES)),minio)
	$(SAY) "measuring, as root because it drops the page cache; about 20 minutes"
	@cd loadtest && PATH="$(BENCH):$$PATH" python -m bench --bireme $(CARGO_TARGET_DIR)/release/bireme \
		--profile $(PROFILE) --output ../docs/benchmarks $(if $(WORDNET),--wordnet $(abspath $(WORDNET))) $(PIECES)

network: release ## run both tiers on a network of their own, as root: cost by nodes, faults, invalid lists; PIECES=faults
	@.ci/setup network
	$(SAY) "measuring in network namespaces, as root; about 20 minutes"
	@cd loadtest && python3 -m network --bireme $(CARGO_TARGET_DIR)/release/bireme --output ../docs/benchmarks $(PIECES)

test: ## run all tests, on a real drive, a real S3 server and real sockets
	@.ci/setup build rust s3
	$(SAY) "building and running the tests"
	@BIREME_S3_SERVER=$(CACHE)/s3/bin/moto_server BIREME_WORDNET=$(WORDNET) cargo test --locked --workspace

attacks: release ## attack both nodes, in the development and the release build, and write docs/security.md
	@.ci/setup build rust s3
	$(SAY) "attacking the development build, then the release build; loads are bounded and stay on 127.0.0.1"
	@mkdir -p $(ATTACKS) && rm -f $(ATTACKS)/*.jsonl
	@BIREME_ATTACKS_RESULTS=$(ATTACKS)/development.jsonl $(ATTACK)
	@BIREME_ATTACKS_RESULTS=$(ATTACKS)/release.jsonl BIREME_ATTACKED=$(CARGO_TARGET_DIR)/release/bireme $(ATTACK)
	@cd loadtest && python3 -m attacks --development $(ATTACKS)/development.jsonl \
		--release $(ATTACKS)/release.jsonl --output ../docs/security.md

soak: ## simulate new seeds for MINUTES (10), kill a node KILLS times (1000), crash its filler with SEEDS seeds (5000), fuzz TIMES (100) times as long
	@.ci/setup build rust
	$(SAY) "simulating I/O nodes for $(MINUTES) minutes, and callers with grants as long; a failing seed is printed"
	@BIREME_MINUTES=$(MINUTES) $(SIMULATION) whatever -- --nocapture --test-threads=1
	$(SAY) "killing a node $(KILLS) times, about 10 minutes; crashing simulated drives with $(SEEDS) seeds"
	@BIREME_KILLS=$(KILLS) cargo test --locked --workspace --test cli killed -- --nocapture
	@BIREME_SEEDS=$(SEEDS) cargo test --locked --workspace --lib crash -- --nocapture
	$(SAY) "fuzzing the decoders of data from drives and connections, $(TIMES) times as long as the tests do, from a new seed"
	@BIREME_FUZZ_SEED=$$(date +%s) BIREME_FUZZ_TIMES=$(TIMES) cargo test --locked --workspace fuzz_

seed: ## repeat the simulation of one seed and print its events: SEED=17
	@BIREME_SEEDS=$(SEED)..$$(($(SEED) + 1)) BIREME_TRACE=1 $(SIMULATION) whatever -- --nocapture --test-threads=1

image: release ## make an image without a daemon, for containerd, Docker or Podman to load
	@.ci/setup image
	$(SAY) "making $(IMAGE)"
	@helm/image/build $(CARGO_TARGET_DIR)/release/bireme bireme:$$(sed -n 's/^appVersion: "\(.*\)"/\1/p' helm/bireme/Chart.yaml) $(IMAGE)

loadtest: build ## put load on both tiers with k6, a few seconds each; SCENARIOS="search get"
	@.ci/setup k6
	@BIREME=$(BIREME) loadtest/k6/run $(SCENARIOS)

lancedb: build ## read through both tiers with LanceDB's clients, beside their own local reads
	@.ci/setup lancedb
	$(SAY) "reading with LanceDB's clients for Python and Node, and a Lance Namespace client"
	@cd loadtest/lancedb_clients && BIREME=$(BIREME) NODE_FOLDER=$(CACHE)/lancedb/node \
		$(CACHE)/lancedb/bin/python -m pytest -q -p no:cacheprovider -W ignore::DeprecationWarning .

lancedb-java: build ## read through both tiers with the Lance Namespace client for Java
	@.ci/setup lancedb lancedb-java
	@mvn -q -B -f loadtest/lancedb_java/pom.xml -Dtarget=$(CACHE)/lancedb-java compile \
		dependency:build-classpath -Dmdep.outputFile=$(CACHE)/lancedb-java/classpath
	@cd loadtest/lancedb_clients && BIREME=$(BIREME) \
		JAVA_CLASSES=$(CACHE)/lancedb-java/classes:$$(cat $(CACHE)/lancedb-java/classpath) \
		$(CACHE)/lancedb/bin/python -m pytest -q -p no:cacheprovider -W ignore::DeprecationWarning test_java.py

lancedb-rust: build ## read through both tiers with LanceDB's client for Rust, which compiles Lance once more
	@.ci/setup lancedb
	$(SAY) "building LanceDB's client for Rust; the first time this takes up to half an hour on 2 cores, and 3 GB"
	@CARGO_TARGET_DIR=$(CACHE)/lancedb-rust cargo build --locked --manifest-path loadtest/lancedb_rust/Cargo.toml
	@cd loadtest/lancedb_clients && BIREME=$(BIREME) LANCEDB_RUST=$(CACHE)/lancedb-rust/debug/lancedb-rust \
		$(CACHE)/lancedb/bin/python -m pytest -q -p no:cacheprovider -W ignore::DeprecationWarning test_rust.py

lancedb-tests: build ## run LanceDB's own tests of reads through both tiers, fetched from GitHub; ARGUMENTS="-k fts"
	@.ci/setup lancedb-tests
	@BIREME=$(BIREME) loadtest/lancedb_tests/run $(ARGUMENTS)

python: build ## build the Python package's wheel, and test it in a clean virtual environment; ARGUMENTS="-k async"
	@.ci/setup build python
	@services/python/check $(BIREME) $(ARGUMENTS)

python-fmt: ## format the Python package
	@.ci/setup python
	@cd services/python && $(CACHE)/python/bin/ruff check --quiet --fix . ; $(CACHE)/python/bin/ruff format --quiet .

protos: ## check that the protos break no existing client or node, against proto/baseline.binpb
	@.ci/setup buf
	@$(CACHE)/kubernetes/bin/buf breaking proto --against proto/baseline.binpb

protos-baseline: protos ## record the protos as the ones that later versions must not break; do this at each release
	@$(CACHE)/kubernetes/bin/buf build proto --output proto/baseline.binpb

chart: ## check the chart: lint, templates, alerts, dashboards, schemas, README, SBOM, and a dry run by a real API server
	@.ci/setup helm apiserver prometheus sbom
	@helm/check

chart-readme: ## generate the chart's README from its values
	@.ci/setup helm
	@cd helm && $(CACHE)/kubernetes/bin/helm-docs --chart-search-root bireme

dashboards: build ## run every query of dashboards, alerts and runbooks on a real Prometheus over nodes under load
	@.ci/setup s3 prometheus
	@cd helm && BIREME_E2E_RUN=dashboards python3 -m watch --bireme $(BIREME)

chart-dashboards: ## generate the chart's dashboards from helm/dashboards
	@cd helm && python3 -m dashboards

e2e-kubernetes: release ## test the chart on a real Kubernetes on this machine, as root; STEPS="scale-io restart-io"
	@.ci/setup image helm k6 kubernetes prometheus
	@cd helm && python3 -m e2e --bireme $(CARGO_TARGET_DIR)/release/bireme $(STEPS)

e2e-short: build ## run a few minutes of e2e-kubernetes with the tests' binary: install, search, scale each tier, uninstall
	@.ci/setup image helm k6 kubernetes
	@helm/e2e/short $(BIREME)

fmt: ## format the code
	@cargo fmt --all

lint: ## check formatting, and run clippy with warnings denied
	@.ci/setup build rust
	@cargo fmt --all -- --check
	@cargo clippy --locked --workspace --all-targets -- -D warnings

aarch64: ## check that the crates with code for particular CPUs compile for aarch64
	@.ci/setup rust
	$(SAY) "checking crates for aarch64"
	rustup target add aarch64-unknown-linux-gnu
	cargo check --locked --target aarch64-unknown-linux-gnu \
	    -p distance -p process -p ring@0.1.0 -p key-index -p scheduler -p placement

deny: ## check licenses and sources of all dependencies, and known vulnerabilities if their database can be fetched
	@.ci/setup deny
	@PATH="$(CACHE)/deny/bin:$$PATH" .ci/deny

clean: ## remove build output, the demo's table and its cache
	rm -rf "$(CARGO_TARGET_DIR)" "$(CACHE)/demo" "$(CACHE)/up"
