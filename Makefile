# `make` alone lists the targets. Everything here also works in a fresh clone, as root and as an
# ordinary user; what a target needs beyond Go it says, or gets.

# A clone that belongs to another user must build too, and git refuses to describe that one.
export GOFLAGS := $(GOFLAGS) -buildvcs=false
VERSION ?= $(shell git -c safe.directory='*' describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git -c safe.directory='*' rev-parse --short HEAD 2>/dev/null || echo unknown)

# withpg runs a command with a PostgreSQL for tests: TEST_DATABASE_URL's, else a private one from the
# machine's binaries (which it installs or downloads where there are none), else one in Docker.
withpg := go run ./fixtures/testdb/withpg --
# Two packages at once, ten tests in each: tests wait for PostgreSQL more than they compute.
gotest := go test -count=1 -p 2 -parallel 10
tool := go tool -modfile=.ci/tools/go.mod

# The packages that have benchmarks, and those whose tests do more under BILLING_PROOF=1.
packages_with = $(sort $(dir $(shell grep -rlE --include='*_test.go' $(1) billing cmd fixtures ledger migrations reconcile 2>/dev/null)))
benchmarks = $(addprefix ./,$(call packages_with,'^func Benchmark'))
proofs = $(addprefix ./,$(call packages_with,'BILLING_PROOF'))
# longer are the tests of a package, as a pattern, in files that know BILLING_PROOF.
empty :=
longer = $(subst $(empty) $(empty),|,$(sort $(shell grep -lE 'BILLING_PROOF' $(1)/*_test.go | xargs grep -ohE '^func Test[A-Za-z0-9_]+' | cut -c6-)))

.DEFAULT_GOAL := help
.PHONY: help build demo test race bench lint docker vulnerabilities deploy tools proof crash sim mutants model contract

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' Makefile | while IFS= read -r line; do \
		printf '  make %-16s %s\n' "$${line%%:*}" "$${line#*## }"; done

build: ## the program, into bin/billing
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)" -o bin/billing ./cmd/billing

demo: ## a whole month on this machine: a private PostgreSQL, emulators of Stripe and Resend, the real program
	go run ./cmd/demo

test: ## vet and all tests, against a real PostgreSQL; under eight minutes on two cores
	go vet ./...
	$(withpg) $(gotest) -timeout 8m ./...

race: ## all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(withpg) $(gotest) -race -timeout 45m ./...

bench: ## the benchmarks, once each
	$(if $(benchmarks),$(withpg) go test -p 1 -run '^$$' -bench . -benchtime 1x -timeout 20m $(benchmarks),@echo no benchmarks)

lint: ## golangci-lint, at the version that .ci/tools pins
	$(tool) golangci-lint run ./...

docker: ## the tests of the ledger with PostgreSQL in Docker, by testcontainers-go; installs what it needs as root
	.ci/docker

vulnerabilities: ## govulncheck, with a copy of the database that needs no network but the Go proxy
	.ci/vulnerabilities

deploy: ## the files of docs/deploy, by what will read them: Kubernetes, Prometheus, systemd, cron, BuildKit
	.ci/deploy

tools: lint vulnerabilities docker deploy ## what needs tools installed: lint, vulnerabilities, the Docker path, docs/deploy

# Of the crash matrix a third, another one each day, so that the whole takes half an hour; make crash
# tries all of it. Of the program's own tests those that do more here than in make test.
proof: ## the long versions of the tests: a third of the crash matrix, simulation, mutants, model
	@export BILLING_PROOF=1 BILLING_PART=$${BILLING_PART:-$$(( $$(date +%s) / 86400 % 3 ))/3}; bad=0; echo "crash matrix: part $$BILLING_PART"; \
	$(withpg) $(gotest) -timeout 40m $(filter ./fixtures/%,$(proofs)) || bad=1; \
	$(withpg) $(gotest) -timeout 40m -run '^($(call longer,cmd/billing))$$' ./cmd/billing || bad=1; \
	exit $$bad

# One point again: make crash POINT='TestStoppedAnywhere…/run/killed/…', as a failure prints it.
crash: ## the crash matrix: stopped at every statement and call, every command ends as a clean one
	@BILLING_PROOF=1 $(withpg) $(gotest) -timeout 60m -v $(if $(POINT),-run '$(POINT)') ./fixtures/crash | \
		awk '/^(=== |testdb:|PASS$$)|^ *(=== |--- PASS)/ { next } /^ *--- FAIL|^FAIL/ { bad = 1 } /^ok/ { good = 1 } { print } END { exit bad || !good }'

# Other histories, or one again, as a failure prints it: make sim SEED=17 N=1.
sim: ## random histories of companies, N of them from SEED on: counts of what happened; a failing one is shrunk
	@SIM_SEED=$(or $(SEED),1) SIM_N=$(or $(N),20) $(withpg) go test -count=1 -parallel 4 -timeout 60m -v -run '^TestTheSimulation$$' ./fixtures/sim | \
		awk '/^(=== |testdb:|PASS$$)|^ *(=== |--- PASS)/ { next } /^ *--- FAIL|^FAIL/ { bad = 1 } /^ok/ { good = 1 } { print } END { exit bad || !good }'

# One mutant again: make mutants MUTANT=exit-0-with-pending-rows, as a failure prints it.
mutants: ## known mistakes put into the program one at a time: the table of the test that kills each
	@BILLING_PROOF=1 $(withpg) $(gotest) -timeout 30m -v -run '^TestEveryMutantDies$$$(if $(MUTANT),/^$(MUTANT)$$)' ./fixtures/mutants | \
		awk '/^(=== |testdb:|PASS$$| *--- PASS)/ { next } /^ *--- FAIL|^FAIL/ { bad = 1 } / killed, in / { done = 1 } { print } END { exit bad || !done }'

model: ## one charge under every order of events: what holds with all rules, and a schedule that breaks without each
	@BILLING_PROOF=1 go test -count=1 -timeout 20m -v ./fixtures/model | \
		awk '/^(=== |PASS$$)|^ *--- PASS/ { next } /^ *--- FAIL|^FAIL/ { bad = 1 } /^ok/ { good = 1 } { print } END { exit bad || !good }'

# go test fuzzes one target of one package at a time. Nothing is built for cmd/billing: its
# fuzz targets run no program. What is found is kept in testdata/fuzz, and is a test from then on.
# A target that ends with "context deadline exceeded" and no input failed nothing: Go's coordinator
# took its own end for an error (go.dev/issue/75804, mended in Go 1.27).
fuzz: ## every fuzz target in turn, each for FUZZTIME (10s)
	@export BILLING_TEST_PROGRAM=none; bad=0; \
	for target in $$(grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' billing cmd fixtures ledger migrations reconcile | awk '{ print $$2 }' | sort -u); do \
		for dir in $$(grep -rlE --include='*_test.go' "^func $$target\(" billing cmd fixtures ledger migrations reconcile | xargs -n 1 dirname | sort -u); do \
			echo "$$dir $$target"; \
			said=$$(go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FUZZTIME),10s) -parallel 2 "./$$dir" 2>&1) && good=1 || good=0; \
			echo "$$said"; \
			[ $$good = 1 ] || { echo "$$said" | grep -q '^    context deadline exceeded$$' && ! echo "$$said" | grep -qE 'Failing input|panic:|_test.go:'; } || bad=1; \
		done; \
	done; exit $$bad

# No other target talks to Stripe, also where the key is in the environment all day.
unexport STRIPE_TEST_KEY STRIPE_CONTRACT_BASE
contract: export STRIPE_TEST_KEY := $(STRIPE_TEST_KEY)
contract: export STRIPE_CONTRACT_BASE := $(STRIPE_CONTRACT_BASE)
contract: ## ask a Stripe sandbox all that the emulator believes: make contract STRIPE_TEST_KEY=sk_test_…
	@[ -n "$$STRIPE_TEST_KEY" ] || { echo 'make contract needs a key of a Stripe sandbox: make contract STRIPE_TEST_KEY=sk_test_…' >&2; exit 2; }
	@cd fixtures/stripeemu/contract && go test -count=1 -timeout 30m -run '^TestContract$$'
