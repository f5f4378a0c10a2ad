# Everything a developer runs. `make` alone lists it.

GO       ?= go
FUZZTIME ?= 30s
SOAK     ?= 1h
STORAGE  ?= storage
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -X github.com/jobdir/jobdir/cli.version=$(VERSION)
LINT     := $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
EXAMPLE  := jobs-example/outbox-s3# a module of its own, as bench is

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/jobdir
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/jobdir .

.PHONY: run
run: build ## keep a daemon running with the example jobs, on ./storage
	bin/jobdir serve --jobs jobs-example --storage $(STORAGE)

.PHONY: demo
demo: ## build, start, stream, pause and resume a real operation, stop; under a minute
	bash tools/demo

.PHONY: setup
setup: ## fetch modules, and as root the small tools that some tests use; prints their size
	@GO='$(GO)' tools/setup

.PHONY: setup-all
setup-all: ## and the large ones: a browser, servers of S3 and MongoDB; tests that need them are skipped otherwise
	@GO='$(GO)' tools/setup all

# The time-out is for what hangs, not for a busy machine. More packages at once than processors: tests wait for processes
# and disks. The long ones begin first. The analyzers of go vet run once, in make lint.
GOTEST   := $(CURDIR)/bin/gotestsum -- -race -vet=off -timeout 30m -p 4
LONGEST  := ./daemon ./internal/torture ./cli
# The packages of this module of which make test runs a short form.
PROOFS    = $(sort $(dir $(shell grep -rl --include='*_test.go' --exclude-dir=bench '"github.com/jobdir/jobdir/internal/prooftest"' .)))
export GOTESTSUM_FORMAT ?= pkgname
# Otherwise each program with the race detector, and there are thousands, sleeps a second when it ends.
export GORACE ?= atexit_sleep_ms=0

# With the race detector it shares the compiled standard library with the tests, which halves its build.
bin/gotestsum: tools/go.mod tools/go.sum
	$(GO) build -race -modfile=tools/go.mod -o $@ gotest.tools/gotestsum

# The three modules side by side: what the small ones wait for costs no time then.
.PHONY: test
test: setup bin/gotestsum ## run every test with the race detector, the longest ones in a short form; minutes
	@$(MAKE) --no-print-directory -j3 test-program test-bench test-example
.PHONY: test-program test-bench test-example
test-program: bin/gotestsum
	$(GOTEST) -count=1 $(LONGEST) ./...
test-bench: bin/gotestsum
	cd bench && $(GOTEST) -count=1 ./...
test-example: bin/gotestsum
	cd $(EXAMPLE) && $(GOTEST) -count=1 ./...

.PHONY: prove
prove: bin/gotestsum ## the longer form of tests that make test shortens, and tests with the old order of writes; twenty minutes
	JOBDIR_TORTURE=prove $(GOTEST) -count=1 $(PROOFS)
	JOBDIR_COMMIT=files $(GOTEST) -count=1 ./internal/torture ./daemon ./control
	cd bench && JOBDIR_TORTURE=prove $(GOTEST) -count=1 ./...
	cd $(EXAMPLE) && JOBDIR_TORTURE=prove $(GOTEST) -count=1 -run TestKilledWorkersGoOn .

.PHONY: torture
torture: ## kill it, cut the power, fail the disk: full counts, figures into bin/torture.json
	@mkdir -p bin
	JOBDIR_TORTURE=full JOBDIR_TORTURE_JSON=$(CURDIR)/bin/torture.json $(GO) test -count=1 -timeout 90m -v ./internal/torture

.PHONY: soak
soak: ## mixed load with a kill -9 every 30 s for SOAK (1h): nothing is lost, memory and disk stay flat
	JOBDIR_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run 'TestSoak$$' ./internal/torture

.PHONY: figures
figures: ## write the figures of bin/torture.json into docs/reliability.md
	$(GO) test -count=1 -run TestReliabilityPage ./internal/torture -update

.PHONY: mutants
mutants: ## take away one sync, one check, one reader at a time: the tests must turn red each time
	$(GO) run ./internal/mutants $(MUTANTS)

.PHONY: lint
lint: ## run the linters at their pinned version (the first run builds them: minutes)
	$(LINT) run ./...
	cd bench && $(LINT) run ./...
	cd $(EXAMPLE) && $(LINT) run ./... && cd testserver && $(LINT) run ./...

.PHONY: fmt
fmt: ## format as the linters want it
	$(LINT) fmt
	cd bench && $(LINT) fmt
	cd $(EXAMPLE) && $(LINT) fmt

.PHONY: bench
bench: ## measure, beside the floor of the same machine; BENCH='flags' are handed on
	$(GO) -C bench build -o ../bin/bench .
	bin/bench $(BENCH)

.PHONY: bench-peers
bench-peers: ## measure section l beside asynq, BullMQ, NATS, River, beanstalkd; as root it installs them
	@GO='$(GO)' tools/peers $(BENCH)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' tools/fuzz

.PHONY: cover
cover: ## test coverage of the program over package borders, as bin/cover.html
	@mkdir -p bin
	$(GO) test -timeout 30m -p 2 -coverpkg=./... -coverprofile=bin/cover.out ./...
	$(GO) tool cover -html=bin/cover.out -o bin/cover.html
	@$(GO) tool cover -func=bin/cover.out | tail -n 1

.PHONY: cross
cross: ## build for other systems: the client on macOS, everything on arm64
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build ./client ./statefs
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) -C bench build -o /dev/null .

.PHONY: generate
generate: ## rewrite what is generated: lint rules from the import table, docs from code
	$(GO) generate ./...
	$(GO) test -count=1 -run TestLintRulesEqualTheTable . -update

.PHONY: check
check: lint test prove cross ## all that must pass before a change goes in

.PHONY: clean
clean: ## remove bin/ (never a storage folder)
	rm -rf bin
