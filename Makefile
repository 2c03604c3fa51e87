# Copyright The Muster Authors.
# SPDX-License-Identifier: Apache-2.0

# Every target installs what it needs. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

ROOT := $(abspath .)
BIN := $(ROOT)/bin
MODULES := apis pool-operator ipam-operator discovery-operator agent-service e2e
# Modules that hold tests only, with libraries of their own: they are not in go.work.
ALONE := e2e/move
OPERATORS := $(patsubst %/cmd,%,$(wildcard *-operator/cmd agent-service/cmd))
TOOLS := $(BIN)/applyconfiguration-gen $(BIN)/controller-gen $(BIN)/golangci-lint $(BIN)/kind $(BIN)/kustomize
# Packages under test at once: each may start a control plane of its own.
PARALLEL ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n > 4 ? 4 : n )))
# Modules under test at once: their tests wait, but more of them compute too much.
JOBS ?= 2
# The race detector needs a C compiler.
RACE ?= $(if $(shell command -v cc 2>/dev/null),-race)
# Without the debugger's tables a test binary is linked in three quarters of the time.
TEST_FLAGS ?= $(RACE) -ldflags=-w -shuffle=on -timeout=30m
# Tests have more memory than time.
test test-modules e2e e2e-kind: export GOGC ?= 200
# The longest first.
TESTED := discovery-operator agent-service ipam-operator pool-operator apis
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

export GOTOOLCHAIN := local
export PATH := $(BIN):$(PATH)

##@ Use

demo: controlplane build ## Do the main job and show it: a pool, a claim, a working cluster. KEEP=1 leaves it running.
	@$(MAKE) live-image-if-possible || echo "without a live image the demo boots no machines" >&2
	@$(BIN)/demo

controlplane: ## Build etcd, kube-apiserver, kube-controller-manager and kubectl once, and bin/controlplane.
	@hack/controlplane/build
	@mkdir -p $(BIN)
	@GOWORK=off go -C pool-operator build -o $(BIN)/controlplane ./cmd/controlplane

build: ## Build the operators and the demo into bin/.
	@mkdir -p $(BIN)
	@for m in $(OPERATORS); do GOWORK=off CGO_ENABLED=0 go -C $$m build -trimpath -o $(BIN)/ ./cmd/...; done
	@GOWORK=off go -C e2e build -o $(BIN)/ ./cmd/...

live-image: ## Build our own live image from a kernel of Debian and the agent: bin/live/live.iso.
	@hack/liveimage

images: ## Build container images without a registry, as docker archives in bin/images.
	@hack/images/build

##@ Test

test: prerequisites controlplane build live-image-if-possible ## Pass all tests: of modules, then journeys.
	@$(MAKE) -j$(JOBS) $(addprefix test-,$(TESTED)) $(addprefix journeys-,e2e $(ALONE))

# On Debian, what the tests need and is missing is installed.
prerequisites:
	@hack/prerequisites

test-modules: controlplane build ## Tests of every module, API tier included.
	@$(MAKE) -j$(JOBS) $(addprefix test-,$(TESTED))

test-boot: prerequisites live-image ## Boot machines, emulated by QEMU, from discovery images: BIOS and UEFI.
	@GOWORK=off go -C agent-service test -count=1 -timeout=20m ./boot/...

# Packages of Debian are what the image is made of.
live-image-if-possible:
	@if command -v dpkg-deb >/dev/null 2>&1; then hack/liveimage; else echo "no live image without packages of Debian: no machine is booted" >&2; fi

test-short: ## Only the tests that need no control plane.
	@for m in $(MODULES) $(ALONE); do echo "== $$m"; GOWORK=off go -C $$m test $(TEST_FLAGS) -short ./...; done

$(addprefix test-,$(TESTED)): test-%: controlplane
	@echo "== $*"
	@GOWORK=off go -C $* test $(TEST_FLAGS) -p $(PARALLEL) ./...

e2e: controlplane build ## User journeys, rendered overlays and clusterctl move, on the local control plane.
	@$(MAKE) -j2 $(addprefix journeys-,e2e $(ALONE))

$(addprefix journeys-,e2e $(ALONE)): journeys-%:
	@echo "== $*"
	@GOWORK=off go -C $* test -ldflags=-w -count=1 -shuffle=on -timeout=30m -p 2 ./...

e2e-kind: controlplane build $(BIN)/kind ## User journeys in a kind cluster (node image: KIND_NODE_IMAGE).
	@echo "== e2e in kind"
	@GOWORK=off E2E_ENVIRONMENT=kind go -C e2e test -count=1 -shuffle=on -timeout=45m -v ./journeys/...

bench: bench-pool bench-ipam bench-discovery bench-agent ## Run every benchmark; figures go to bin/bench.jsonl.

BENCHES := pool ipam discovery agent
$(addprefix bench-,$(BENCHES)): bench-%: controlplane build
	@hack/bench $*

##@ Develop

tools: $(TOOLS) ## Install the pinned tools into bin/.

$(BIN)/applyconfiguration-gen: PACKAGE := k8s.io/code-generator/cmd/applyconfiguration-gen
$(BIN)/controller-gen: PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
$(BIN)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/kind: PACKAGE := sigs.k8s.io/kind
$(BIN)/kustomize: PACKAGE := sigs.k8s.io/kustomize/kustomize/v5

$(TOOLS): hack/tools/go.mod hack/tools/go.sum
	@echo "building $(@F)"
	@mkdir -p $(BIN)
	@GOBIN=$(BIN) GOWORK=off CGO_ENABLED=0 go -C hack/tools install $(PACKAGE)
	@touch $@

generate: $(BIN)/controller-gen $(BIN)/applyconfiguration-gen ## Generate deepcopy, apply configurations, CRDs and RBAC.
	@hack/generate

tidy:
	@for m in $(MODULES) $(ALONE) hack/controlplane hack/tools; do GOWORK=off go -C $$m mod tidy; done

fmt: $(BIN)/golangci-lint ## Format the code.
	@for m in $(MODULES) $(ALONE); do (cd $$m && GOWORK=off golangci-lint fmt ./...); done

lint: $(BIN)/golangci-lint ## Lint every module.
	@for m in $(MODULES) $(ALONE); do echo "== lint $$m"; (cd $$m && GOWORK=off golangci-lint run ./...); done

verify: generate tidy lint ## Generate, tidy, lint; the tree must stay clean.
	@for m in $(MODULES); do GOWORK=off go -C $$m build ./...; go -C $$m build ./...; done
	@for m in $(ALONE); do GOWORK=off go -C $$m vet ./...; done
	@if [ -n "$$(git status --porcelain)" ]; then echo "the tree is not clean after generation:"; git status --short; git diff --stat; exit 1; fi

vulncheck: ## Check dependencies against the vulnerability database (needs the network).
	@for m in $(MODULES) $(ALONE); do GOWORK=off go -C hack/tools tool govulncheck -C $(ROOT)/$$m ./...; done

clean: ## Remove bin/. The control plane's binaries stay in the user's cache.
	@rm -rf $(BIN)

help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; echo "  test-<module> tests one module; bench-<pool|ipam|discovery|agent> runs its benchmarks."

.PHONY: demo prerequisites controlplane build live-image live-image-if-possible images test test-boot test-modules test-short e2e e2e-kind bench tools generate tidy fmt lint verify vulncheck clean help \
	$(addprefix test-,$(filter-out e2e,$(MODULES))) $(addprefix journeys-,e2e $(ALONE)) $(addprefix bench-,$(BENCHES))
