# The two that need nothing but Go: make demo, make test.
SHELL := /bin/bash
export CGO_ENABLED ?= 0
BIN := bin/agentsim
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BUF := github.com/bufbuild/buf/cmd/buf@v1.75.0
PROTOC_GEN_GO := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12

## help: list the targets
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## build: the static binary, bin/agentsim
build:
	go build -trimpath -ldflags '-s -w' -o $(BIN) ./cmd/agentsim

## test: all tests; with the race detector where a C compiler is there
test:
	go vet ./...
	go test ./...
	@if command -v cc >/dev/null; then echo CGO_ENABLED=1 go test -race -short ./...; CGO_ENABLED=1 go test -race -short ./...; \
	else echo "race detector SKIPPED: it needs a C compiler"; fi

## lint: gofmt, vet and staticcheck
lint:
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...

## bench: Go benchmarks, the speed of whole processes, and the same work on a peer where it can be installed
bench: build
	go test -run '^$$' -bench . -benchmem ./...
	bench/run.sh $(BIN)
	interop/run.sh aisimulate

## accuracy: how far predictions are from published measurements (../shared/ground-truth); writes the tables into README.md and accuracy/README.md, or prints that of TRUTH=DIR
accuracy:
	go test ./accuracy -run '^TestAccuracy$$' -count=1 -v -update

## profiles: fit every shipped cost profile again (TRUTH, NAMES: which data, which profiles); takes minutes a profile
TRUTH ?= ../shared/ground-truth
profiles: build
	accuracy/profiles.sh $(BIN) $(TRUTH) models/catalogue/profiles $(NAMES)

## fuzz: every fuzz target for FUZZTIME (default 20s); what is found is made smaller in 100 tries, or that would take all the time
FUZZTIME ?= 20s
fuzz:
	@for dir in $$(grep -rl --include=*_test.go '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -h '^func Fuzz' $$dir/*_test.go | sed 's/func \(Fuzz[A-Za-z0-9]*\).*/\1/'); do \
			echo "== $$dir $$target"; go test $$dir -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x || exit 1; \
		done; \
	done

## shapes: what published results look like beside what the simulator makes of the same deployments; fails out of range
shapes:
	go run ./shapes

## proto: generate perfetto/perfettopb from its .proto again; needs no protoc, and minutes the first time
proto:
	cd perfetto/perfettopb && go run $(BUF) generate --template \
		'{"version":"v2","plugins":[{"local":["go","run","$(PROTOC_GEN_GO)"],"out":".","opt":"paths=source_relative"}]}'

## demo: the main job on a built-in sample: how many coding agents at a time before the KV cache thrashes, and behind which router?
demo: build
	$(BIN) predict --profile mini-swe-agent --programs 192 --concurrency 16,32,64 --model llama-3.3-70b --tp 4 --workers 2 --router round-robin,kv,thunderagent

## demo-record: agents work through the recording proxy, against a stand-in server; their trace is then predicted on other deployments
demo-record: build
	bench/demo-record.sh $(BIN)

## closing-loop: predict, then replay against the same deployment served on the wall clock: both must tell the same; wants a quiet machine
closing-loop:
	CLOSING_LOOP=1 go test ./replay -run '^TestClosingLoop$$' -count=1 -v -timeout 15m

## interop: compare with NVIDIA's aisimulate and AIPerf and Hugging Face's tokenizers, take tool events from pyzmq, record the SDKs of OpenAI and Anthropic, all from PyPI, in 5 minutes; skipped with a reason where python3 or PyPI is missing
interop:
	interop/run.sh aisimulate
	interop/run.sh aiperf
	interop/run.sh tokenizers
	interop/run.sh pyzmq
	interop/run.sh sdks

.PHONY: help build test lint bench accuracy profiles shapes fuzz proto demo demo-record closing-loop interop
.DEFAULT_GOAL := help
