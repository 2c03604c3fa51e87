# Copyright The Muster Authors.
# SPDX-License-Identifier: Apache-2.0

# Every target installs what it needs. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

ROOT := $(abspath .)
BIN := $(ROOT)/bin
MODULES := apis pool-operator ipam-operator discovery-operator agent-service kubectl-muster e2e hack/build
# Modules that hold tests only: they are not in go.work.
ALONE := e2e/charts e2e/move
# Modules that have each library they share at one version, so that it is compiled once. The tools, containerd, which needs newer
# libraries than Kubernetes, and dex are compiled apart.
ALIGNED := $(MODULES) $(ALONE) hack/controlplane hack/node
OPERATORS := $(patsubst %/cmd,%,$(wildcard *-operator/cmd agent-service/cmd))
TOOLS := $(BIN)/applyconfiguration-gen $(BIN)/controller-gen $(BIN)/golangci-lint $(BIN)/kind $(BIN)/kustomize
# Packages of a module under test at once: each may start a control plane of its own, and an idle one takes its share of a processor.
PARALLEL ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n > 8 ? 4 : n > 2 ? n / 2 : 1 )))
# Suites under test at once: their tests wait, so that three with one package each keep two processors busy.
JOBS ?= 3
# The race detector needs a C compiler, and all libraries compiled once more. Packages run with it whose files, tests included,
# start goroutines, select, lock, or have code called in goroutines of others (servers, managers, caches): bin/raced derives the
# list from the sources. Rules, parsers and types run without it: "bin/raced -not MODULE" lists those packages.
RACE ?= $(if $(shell command -v cc 2>/dev/null),-race)
CGO := $(if $(RACE),CGO_ENABLED=1)
# Without the debugger's tables a test binary is linked in three quarters of the time. "make lint" vets: here it would vet each dependency
# twice more, with the race detector and without.
TEST_FLAGS ?= -vet=off -ldflags=-w -shuffle=on -timeout=45m
# What tests start lives for seconds or minutes, API servers above all: less collection saves a seventh of their processor time, and the limit keeps large ones small.
COLLECT := GOGC=1000 GOMEMLIMIT=1GiB
TESTED := discovery-operator agent-service ipam-operator pool-operator apis kubectl-muster hack/build
# All tests of modules, the longest first.
SUITES := $(addprefix test-,$(TESTED)) $(addprefix unraced-,$(OPERATORS) hack/build) race-for-machines
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# One set of build flags: hack/env says which and why.
export GOWORK := $(shell . hack/env && echo "$$GOWORK")
export GOTOOLCHAIN := $(shell . hack/env && echo "$$GOTOOLCHAIN")
export CGO_ENABLED := $(shell . hack/env && echo "$$CGO_ENABLED")
export GOFLAGS := $(shell . hack/env && echo "$$GOFLAGS")
export PATH := $(BIN):$(PATH)

##@ Use

demo: ## Do the main job and show it: a pool, a claim, a working cluster. KEEP=1 leaves it running.
	@KEEP="$(KEEP)" DEMO_MACHINE="$(DEMO_MACHINE)" hack/announce
	@hack/stage "tools of the build" $(MAKE) $(BIN)/progress
	@hack/stage "control plane" hack/controlplane/build >/dev/null
	@for m in $(OPERATORS); do hack/stage "$$m" $(call compile,$$m,$(DEMO_PROGRAMS)) || exit; done
	@hack/stage "demo program" $(call compile,e2e,./cmd/demo)
	@hack/stage "live image" $(MAKE) live-image-if-possible || echo "without a live image the demo boots no machines" >&2
	@hack/stage "demo" $(BIN)/demo
	@if [ -n "$(KEEP)" ]; then :; elif [ -n "$(DEMO_MACHINE)" ] || hack/announce --machine; then hack/stage "machine" $(MAKE) demo-machine; \
	else echo "With QEMU, Debian and four cores, a machine becomes a node of a claimed cluster now; here, make rack shows it."; fi

demo-machine: scheduler build live-image node-image ## The end of the demo: one machine, emulated by QEMU, becomes the node of a claimed cluster, and is free again (DEMO_MACHINE=1 make demo).
	@command -v kubectl >/dev/null 2>&1 || hack/controlplane/build kubectl >/dev/null
	@MUSTER_RACK_TESTS=1 MUSTER_RACK_DEMO=1 go -C e2e test -ldflags=-w -count=1 -timeout=20m -v -run TestOneUnregisteredMachineBecomesANode ./rack

# What is built for the demo of an operator's programs; hack/liveimage builds the others.
DEMO_PROGRAMS := $$(cd $$m && ls -d ./cmd/* | grep -v -e '/live-' -e '/ramdisk$$')

# compile DIRECTORY,PACKAGES: builds programs into bin/ and shows how far it is. Programs without the debugger's tables are
# linked in three quarters of the time; "go build" in the module's directory makes one for a debugger.
compile = $(BIN)/progress -label $1 -C $1 -o $(BIN)/ -ldflags=-w $2

# Programs of the build; go decides whether they are up to date.
$(BIN)/progress $(BIN)/raced $(BIN)/versions: force
	@mkdir -p $(BIN)
	@go -C hack/build build -ldflags=-w -o $@ ./cmd/$(@F)

dex: $(BIN)/dex ## Build dex, the issuer of OpenID Connect that tests of the console sign in at.

$(BIN)/dex: $(BIN)/progress force
	@$(BIN)/progress -label dex -C hack/dex -o $@ -ldflags=-w .

test test-modules test-agent-service: $(BIN)/dex

controlplane: $(BIN)/progress ## Make etcd, kube-apiserver and kube-controller-manager available, and bin/controlplane.
	@hack/controlplane/build >/dev/null
	@$(call compile,pool-operator,./cmd/controlplane)

build: $(BIN)/progress ## Build the operators, the plugin, the demo and the benchmarks into bin/.
	@for m in $(OPERATORS) kubectl-muster e2e; do $(call compile,$$m,./cmd/...) || exit; done

kubectl-muster: $(BIN)/progress ## Build the plugin of kubectl: bin/kubectl-muster.
	@$(call compile,kubectl-muster,./cmd/...)

live-image: ## Build our own live image from a kernel of Debian and the agent: bin/live/live.iso.
	@hack/liveimage

node-image: ## Build the image of an operating system that joins clusters as a node: bin/node/node.img.zst.
	@hack/nodeimage

images: ## Build container images without a registry, as docker archives in bin/images.
	@hack/images/build

charts: ## Write a Helm chart of each operator, and its archive, into bin/charts (VERSION).
	@rm -rf $(BIN)/charts && mkdir -p $(BIN)/charts
	@go -C e2e run ./cmd/chart $(CHART_VERSION) $(BIN)/charts | while read -r dir; do \
		tar -C $(BIN)/charts --owner=0 --group=0 --numeric-owner --sort=name -czf $$dir-$(patsubst v%,%,$(CHART_VERSION)).tgz $${dir##*/}; echo $$dir; done

release: ## Write a release to dist/: images, charts, manifests, SBOMs, licences (VERSION=v0.2.0; PARTS="ipam-operator" for some of it).
	@hack/release $(if $(PLATFORMS),--platforms=$(PLATFORMS)) $(VERSION) $(PARTS)

airgap: ## Pack dist/ into one archive for a network without access to the Internet.
	@hack/airgap

site: ## Write the documentation as a site, which needs no network, to site/ (needs mkdocs).
	@mkdocs build --quiet

# A version of a chart is a semantic one, which the description of a commit is not.
CHART_VERSION := $(shell case "$(VERSION)" in (v[0-9]*.[0-9]*.[0-9]*) echo "$(VERSION)";; (*) echo "v0.0.0-dev-$(VERSION)";; esac)

uninstall: ## Remove operators from kubectl's cluster: all, or WHAT="pool-operator". FLAGS="--delete-objects" removes objects and kinds, too.
	@hack/uninstall $(FLAGS) $(or $(WHAT),$(OPERATORS))

clusterctl: controlplane ## Build what "clusterctl init --ipam muster" installs, into bin/clusterctl.
	@hack/clusterctl

##@ Test

# What runs at the end beside the journeys, which leave processors idle: journeys-kind.
BESIDE ?=

test: prerequisites controlplane build $(BIN)/raced live-image-if-possible ramdisk-if-possible node-image-if-possible ## Pass all tests: of modules, then journeys.
	@rm -rf $(LOGS)
	@$(MAKE) -k -j$(JOBS) $(MADE) $(SUITES) $(addprefix journeys-,e2e $(ALONE)) $(BESIDE) || { \
		echo "== what failed (all of it: $(LOGS:$(ROOT)/%=%))"; hack/failures $(LOGS)/*.log; exit 1; }

# Prerequisites of suites that are made before. A suite that waits for one, however shortly, comes after all others: the longest would be last, and alone.
MADE := $(addprefix -o ,controlplane scheduler $(BIN)/raced $(BIN)/dex)

# What "go test" printed, a file for each suite. The log of an operator is longer than the failure it stands beside.
LOGS := $(BIN)/tests
log = | tee -a $(LOGS)/$(subst /,-,$@).log

# On Debian, what the tests need and is missing is installed.
prerequisites:
	@hack/prerequisites

test test-modules test-pool-operator test-agent-service: scheduler

# Only clusters with nodes need it: hosted ones that take them, and those of machines alone.
scheduler: $(BIN)/progress
	@hack/controlplane/build kube-scheduler >/dev/null

test-modules: controlplane build $(BIN)/raced ## Tests of every module, API tier included.
	@$(MAKE) -j$(JOBS) $(MADE) $(SUITES)

test-boot: prerequisites live-image ## Boot machines, emulated by QEMU, from discovery images: BIOS and UEFI.
	@go -C agent-service test -count=1 -timeout=20m ./boot/...

test-node: prerequisites controlplane node-image ## Pack the node image twice, boot it, emulated by QEMU, and join a control plane.
	@hack/nodeimage verify
	@go -C hack/containerd test -ldflags=-w ./cmd/...
	@MUSTER_NODE_TESTS=1 go -C agent-service test -ldflags=-w -count=1 -timeout=40m -v ./nodeboot/...

test-node-three: prerequisites controlplane node-image ## Have three machines, emulated by QEMU, run one control plane, and cut the power of one.
	@MUSTER_NODE_THREE=1 go -C agent-service test -ldflags=-w -count=1 -timeout=60m -v -run TestThreeMachines ./nodeboot

test-ipmi: prerequisites controlplane scheduler build live-image ## Switch machines, emulated by QEMU, through a real Ironic and real IPMI controllers.
	@MUSTER_IPMI_TESTS=1 go -C discovery-operator test -ldflags=-w -count=1 -timeout=30m -v -run IPMI ./internal/app
	@MUSTER_IPMI_TESTS=1 go -C e2e test -ldflags=-w -count=1 -timeout=30m -v -run IPMI ./metal

test-standalone: prerequisites controlplane ## Discover, provision and clean machines, emulated by QEMU, through a real Ironic and our ramdisk.
	@hack/liveimage ramdisk
	@MUSTER_STANDALONE_TESTS=1 go -C discovery-operator test -ldflags=-w -count=1 -timeout=30m -v -run TestAStandaloneSite ./internal/app

# Sets of programs that hack/controlplane/build compiles for minors that the API server of the tests cannot emulate.
OLDER ?= oldest between

test-oldest: controlplane build ## Install on the minors of Kubernetes that README.md names and make test leaves out, compiled from pinned modules (OLDER=oldest for the first alone).
	@assets= && for set in $(OLDER); do assets=$$assets:$$(hack/controlplane/build --$$set) || exit; done && \
	MUSTER_OLDER_ASSETS=$${assets#:} go -C e2e test -ldflags=-w -count=1 -timeout=30m -v -run 'TestMusterInstallsOnEverySupportedMinor/(real|emulated_by_older)$$' ./versions

test-rack-power: prerequisites controlplane scheduler build live-image node-image ## Have a cluster with a machine, emulated by QEMU, hibernate and resume through a real Ironic and IPMI.
	@command -v kubectl >/dev/null 2>&1 || hack/controlplane/build kubectl >/dev/null
	@MUSTER_RACK_TESTS=1 MUSTER_RACK_POWER=1 go -C e2e test -ldflags=-w -count=1 -timeout=40m -v -run TestTheMachineOfAClusterThatResumes ./rack

# All tests that start a real Ironic but those that need Keystone or QEMU beside it.
IRONIC_TESTS = ^(TestIronic|TestManagingOnIronic|TestARealIronic.*|Test.*InARealIronic|TestAnIronicThatNeverAnswers.*|TestAnInspectionThatIronicForgets)$$

test-current-ironic: prerequisites controlplane ## Run the contract and the lives of discovery-operator on the Ironic of another release of Debian (IRONIC_SUITE), as root.
	@IRONIC_SUITE=$(or $(IRONIC_SUITE),trixie) go -C discovery-operator test -ldflags=-w -count=1 -timeout=60m -v -run '$(IRONIC_TESTS)' \
		./internal/contract ./internal/app

rack: prerequisites controlplane scheduler build live-image node-image ## Two machines, emulated by QEMU, become nodes of a claimed cluster, and are free again.
	@command -v kubectl >/dev/null 2>&1 || hack/controlplane/build kubectl >/dev/null
	@MUSTER_RACK_TESTS=1 go -C e2e test -ldflags=-w -count=1 -timeout=40m -v ./rack/...

# Packages of Debian are what the image is made of.
live-image-if-possible:
	@if command -v dpkg-deb >/dev/null 2>&1; then hack/liveimage; else echo "no live image without packages of Debian: no machine is booted" >&2; fi

ramdisk-if-possible:
	@if command -v dpkg-deb >/dev/null 2>&1; then hack/liveimage ramdisk; else echo "no ramdisk without packages of Debian: no machine is deployed through Ironic" >&2; fi

# Its tests emulate a processor: they are left out on fewer than four cores, as agent-service/nodeboot says.
node-image-if-possible:
	@if [ "$$(nproc 2>/dev/null || echo 1)" -lt 4 ]; then echo "no node image on fewer than four cores: make test-node builds and boots it" >&2; \
	elif command -v dpkg-deb >/dev/null 2>&1; then hack/nodeimage; else echo "no node image without packages of Debian: no node is booted" >&2; fi

test-short: ## Only the tests that need no control plane.
	@for m in $(MODULES) $(ALONE); do echo "== $$m"; $(COLLECT) go -C $$m test $(TEST_FLAGS) -short ./...; done

# Pictures of the screens of the console, as Chromium shows them in tests.
ARTIFACTS := $(BIN)/artifacts
artifacts = $(if $(filter agent-service,$*),-artifacts -outputdir=$(ARTIFACTS))

$(addprefix test-,$(TESTED)): test-%: controlplane $(BIN)/raced
	@mkdir -p $(LOGS) $(ARTIFACTS)
	@echo "== $*"
	@plain=$$(raced -not $*) && raced=$$(raced $*); status=0; \
	[ -z "$$plain" ] || { $(call compile-tests,$*,$$plain) && $(COLLECT) go -C $* test $(TEST_FLAGS) -skip '^($(UNRACED))' $(artifacts) -p $(PARALLEL) $$plain $(log); } || status=1; \
	[ -z "$$raced" ] || { $(CGO) $(call compile-tests,$*,$(RACE) $$raced) && $(CGO) $(COLLECT) go -C $* test $(RACE) $(TEST_FLAGS) -skip '^($(UNRACED))' $(artifacts) -p $(PARALLEL) $$raced $(log); } || status=1; \
	exit $$status

# Tests whose packages' other tests run the same goroutines with the race detector run without it, which is several times faster: those
# that run one scenario again and again and crash its process at another write each time, and those of large files, of which it looks at each byte.
UNRACED := TestADeath|TestALargeFile

$(addprefix unraced-,$(OPERATORS) hack/build): unraced-%: controlplane
	@mkdir -p $(LOGS)
	@echo "== without the race detector: $*"
	@unraced=$$(cd $* && grep -rlE --include=*_test.go '^func ($(UNRACED))' . | xargs -n1 dirname | sort -u); \
	$(call compile-tests,$*,$$unraced) && $(COLLECT) go -C $* test $(TEST_FLAGS) -run '^($(UNRACED))' -p $(PARALLEL) $$unraced $(log)

# The race for machines at its full size, which the race detector would make several times longer.
race-for-machines: controlplane
	@mkdir -p $(LOGS)
	@echo "== the race for machines"
	@$(COLLECT) go -C agent-service test $(TEST_FLAGS) -run '^TestNoMachineIsInTwoPools$$' ./internal/controller/machinepool $(log)

# compile-tests DIRECTORY,[-race] PACKAGES: compiles what tests are linked from and shows how far it is, which "go test" does not.
compile-tests = $(BIN)/progress -label "tests of $1" -C $1 -tests $2

e2e: controlplane build ## User journeys, rendered overlays and clusterctl move, on the local control plane.
	@$(MAKE) -j2 $(addprefix journeys-,e2e $(ALONE))

# Packages that take longest begin first, or processors would be idle at the end.
LONGEST_e2e := ./uninstall ./journeys ./upgrade ./pages

# Journeys wait for the same as the other tests, which are longer: else they would begin before them.
$(addprefix journeys-,e2e $(ALONE)): journeys-%: controlplane $(BIN)/raced
	@echo "== $*"
	@mkdir -p $(LOGS)
	@$(call compile-tests,$*,./...)
	@$(COLLECT) go -C $* test $(TEST_FLAGS) -count=1 -p 2 $(LONGEST_$(*F)) ./... $(log)

# As the others, and makes what else it needs when its time comes.
journeys-kind: controlplane $(BIN)/raced
	@$(MAKE) e2e-kind

e2e-kind: controlplane build $(BIN)/kind ## User journeys in a kind cluster (node image: KIND_NODE_IMAGE, or what the program KIND_UP prints).
	@mkdir -p $(LOGS)
	@echo "== e2e in kind"
	@image=$${KIND_NODE_IMAGE:-$${KIND_UP:+$$("$$KIND_UP")}}; \
	KIND_NODE_IMAGE=$$image E2E_ENVIRONMENT=kind go -C e2e test -count=1 -shuffle=on -timeout=45m -v ./journeys/... $(log)

e2e-kind-production: prerequisites controlplane build $(BIN)/kind ## Install a release, use, upgrade and remove it, with two replicas on three nodes of kind (KIND_NODE_IMAGE).
	@hack/release --dist=$(BIN)/dist --platforms=linux/$$(go env GOARCH) v0.2.0 $(OPERATORS) control-plane
	@rm -rf $(BIN)/airgap && mkdir -p $(BIN)/airgap
	@tar -xf "$$(hack/airgap --dist=$(BIN)/dist)" -C $(BIN)/airgap --strip-components=1
	@cd $(BIN)/airgap && sha256sum --check --quiet SHA256SUMS
	@echo "== a release in kind, from its archive for networks without a registry"
	@MUSTER_DIST=$(BIN)/airgap go -C e2e test -ldflags=-w -count=1 -timeout=75m -v ./production

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
	@$(MAKE) $(BIN)/progress
	@$(BIN)/progress -label $(@F) -C hack/tools -o $@ -ldflags=-w $(PACKAGE)
	@touch $@

generate: $(BIN)/controller-gen $(BIN)/applyconfiguration-gen ## Generate deepcopy, apply configurations, CRDs and RBAC.
	@hack/generate

tidy: $(BIN)/versions ## Tidy the modules, and raise what they share to one version.
	@go -C hack/tools mod tidy
	@$(BIN)/versions -align $(ROOT) $(ALIGNED)

# Names the modules and libraries that differ.
verify-versions: $(BIN)/versions
	@$(BIN)/versions $(ROOT) $(ALIGNED)


fmt: $(BIN)/golangci-lint ## Format the code.
	@for m in $(MODULES) $(ALONE); do (cd $$m && golangci-lint fmt ./...); done

# All modules of the workspace at once: the linters read each library once, and not once for each module. They have more memory than time, up to half of the machine's.
lint: export GOGC := 300
lint: export GOMEMLIMIT = $(shell awk '/^MemTotal/ {print int($$2 / 2) "KiB"}' /proc/meminfo 2>/dev/null)
lint: $(BIN)/golangci-lint ## Lint every module.
	@echo "== lint $(MODULES)"
	@GOWORK=$(ROOT)/go.work golangci-lint run $(MODULES:%=./%/...)
	@for m in $(ALONE); do echo "== lint $$m"; (cd $$m && golangci-lint run ./...); done

# Each module compiles alone, which linters that see all of them at once do not show. Nothing is linked.
verify: verify-versions generate tidy lint ## Generate, tidy, lint; the tree must stay clean.
	@for m in $(MODULES); do go -C $$m list -export ./... >/dev/null; done
	@if [ -n "$$(git status --porcelain)" ]; then echo "the tree is not clean after generation:"; git status --short; git diff --stat; exit 1; fi

vulncheck: ## Check dependencies against the vulnerability database (needs the network).
	@for m in $(MODULES) $(ALONE); do go -C hack/tools tool govulncheck -C $(ROOT)/$$m ./...; done

clean: ## Remove bin/. The control plane's binaries stay in the user's cache.
	@rm -rf $(BIN)

help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo; echo "  test-<module> tests one module, unraced-<operator> kills one at every write; bench-<pool|ipam|discovery|agent> runs its benchmarks."

.PHONY: journeys-kind dex force site release airgap demo demo-machine scheduler kubectl-muster charts uninstall prerequisites controlplane build clusterctl race-for-machines live-image live-image-if-possible ramdisk-if-possible node-image node-image-if-possible images test test-boot test-node test-node-three test-oldest test-current-ironic test-ipmi test-standalone test-rack-power rack test-modules test-short e2e e2e-kind e2e-kind-production bench tools generate tidy fmt lint verify verify-versions vulncheck clean help \
	$(addprefix test-,$(filter-out e2e,$(MODULES))) $(addprefix unraced-,$(OPERATORS) hack/build) $(addprefix journeys-,e2e $(ALONE)) $(addprefix bench-,$(BENCHES))
