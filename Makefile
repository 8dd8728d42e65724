# Every target is plain go, so that it can be typed by hand. `make help` lists them; CI runs `make ci`.
GO ?= go
KILLS ?= 50
CUTS ?= 6
FUZZTIME ?= 10s
SEEDS ?= 5000
FROM ?= 0
CI = check build nocgo test onecpu race sim fuzz crash demo interop bench
PYTHONDONTWRITEBYTECODE := 1
export PYTHONDONTWRITEBYTECODE

.PHONY: help build peers peers-check demo test check race invariants nocgo fuzz bench sim interop crash onecpu ci night clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

build: ## bin/ringcastd and bin/ringcast
	$(GO) build -o bin/ ./cmd/...

peers: ## bin/ringcast-peers, what perf compares with: bbolt and Pebble, a module of its own (minutes to compile)
	cd perf/peers && $(GO) build -o ../../bin/ringcast-peers .

peers-check: ## vet and test perf/peers
	cd perf/peers && $(GO) mod tidy -diff && $(GO) vet . && $(GO) test .

demo: build ## publish 100,000 lines, kill the broker, compare what every reader saw (under two minutes)
	./bin/ringcast demo

test: ## every test, each skip named; a skipped guarantee fails
	$(GO) test -json ./... | $(GO) run ./internal/lint/skips

check: ## format, vet, staticcheck, house rules, tidy, other platforms build
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt these:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/lint/...
	$(GO) mod tidy -diff
	GOOS=darwin $(GO) vet ./core ./wire ./fanout ./log

race: ## every test under the race detector
	$(GO) test -race -json ./... | $(GO) run ./internal/lint/skips

invariants: ## every test with assertions and poisoned buffers
	$(GO) test -tags invariants -json ./... | $(GO) run ./internal/lint/skips

nocgo: ## everything builds without a C compiler
	CGO_ENABLED=0 $(GO) build ./...

fuzz: ## every fuzz target for FUZZTIME
	GO="$(GO)" .ci/fuzz $(FUZZTIME)

bench: ## every benchmark once, as a smoke test; see BENCHMARKS.md for numbers
	$(GO) test -run '^$$' -bench . -benchtime 20ms -benchmem ./...

sim: ## a whole broker stepped by SEEDS seeds from FROM on, against a naive model; a failure prints how to replay it
	GOGC=400 RINGCAST_SIM_SEEDS=$(SEEDS) RINGCAST_SIM_FROM=$(FROM) $(GO) test -count 1 -timeout 10h -run 'TestSimulation$$' -v ./core

interop: build ## the official Python client against this broker
	$(GO) build -o bin/ ./interop/tap
	./interop/run

crash: ## SIGKILL brokers KILLS times, over all engines and sync modes, and cut the power of a real file system
	RINGCAST_KILLS=$(KILLS) RINGCAST_CUTS=$(CUTS) $(GO) test -count 1 -timeout 60m -v -run 'TestAckedRecordsSurviveSIGKILL|TestPowerCut' ./cmd/ringcastd

onecpu: ## the suites of the publish path on one CPU: no test may live from a second one
	$(GO) test -count 1 -exec 'taskset -c $(shell taskset -cp $$$$ | sed "s/.*: //; s/[,-].*//") env GOMAXPROCS=1' -json ./sched ./core ./core/serve | $(GO) run ./internal/lint/skips

ci: ## what CI runs, each part with the time it took
	@for t in $(CI); do echo; echo "=== make $$t"; at=$$(date +%s); $(MAKE) --no-print-directory $$t || exit 1; echo "=== $$t took $$(($$(date +%s) - at)) s"; done

night: ## the long forms: a minute of fuzz per target, 200 kills, 50 power cuts per engine and mode, new seeds each day, assertions without the race detector, the peers
	$(MAKE) ci invariants peers peers-check FUZZTIME=60s KILLS=200 CUTS=50 SEEDS=200000 FROM=$$(date +%Y%m%d)000000

clean: ## remove what the targets made
	rm -rf bin .venv-interop .venv-interop-newest
