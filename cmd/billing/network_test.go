package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/netproxy"
	"github.com/chargeonce/billing/fixtures/oracle"
	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// networkFault is what happens to one call, and to whoever waits for it.
type networkFault struct {
	act netproxy.Act
	// then is what happens while the call is held: "" lets it go on, late.
	then string
}

const (
	thenCut    = "cut"    // it is lost after all
	thenKilled = "killed" // the program is; another run comes before the call goes on
)

func networkFaults() []networkFault {
	list := []networkFault{{netproxy.HoldRequest, thenKilled}, {netproxy.HoldAnswer, thenCut}}
	for _, act := range netproxy.Acts {
		list = append(list, networkFault{act: act})
	}
	return list
}

// networkPoint is one call of a month, and the fault that it meets.
type networkPoint struct {
	month *networkReference
	kind  string
	skip  int // so many calls of the kind come before
	fault networkFault
}

func (p networkPoint) name() string {
	name := fmt.Sprintf("%s %d %s", p.kind, p.skip+1, p.fault.act)
	if p.fault.then != "" {
		name += " then " + p.fault.then
	}
	return strings.NewReplacer("/{id}", " by id", "/", " ").Replace(name)
}

// networkReference is a month over a network that is well: what it calls, and how
// it ends.
type networkReference struct {
	networkMonth
	calls map[string]int // by kind
	end   networkEnd
}

func (m networkMonth) record(t *testing.T) *networkReference {
	t.Helper()
	o, p := m.begin(t)
	if r := o.run(m.command...); !slices.Contains([]int{exitOK, exitNeedsPerson, exitUnknown}, r.code) {
		t.Fatalf("%s, undisturbed\n%s", m.name, r)
	}
	ref := &networkReference{networkMonth: m, calls: map[string]int{}}
	for _, kind := range p.Calls() {
		ref.calls[kind]++
	}
	last := o.finish()
	o.mustBeWhole()
	if verdict := m.judge(o, last, false); !verdict.OK() {
		t.Errorf("%s, undisturbed: %s", m.name, verdict)
	}
	ref.end = o.networkEnd()
	return ref
}

// points are the calls of every kind at their first, second, middle, last but one
// and last use, and every send of a month that sends one after the other, each
// under every fault.
func (ref *networkReference) points() (list []networkPoint) {
	for kind, n := range ref.calls {
		uses := []int{0, 1, n / 2, n - 2, n - 1}
		if kind == stripeemu.OpCreate && ref.name == "run" {
			for use := range n {
				uses = append(uses, use)
			}
		}
		slices.Sort(uses)
		for _, use := range slices.Compact(uses) {
			if use < 0 || use >= n {
				continue
			}
			for _, fault := range networkFaults() {
				list = append(list, networkPoint{ref, kind, use, fault})
			}
		}
	}
	return list
}

// sample is every fault once, one call of the month's sampled kind after the other.
func (ref *networkReference) sample() (list []networkPoint) {
	n := ref.calls[ref.sampled]
	for i, fault := range networkFaults() {
		list = append(list, networkPoint{ref, ref.sampled, (n - 1 + 4*i) % n, fault})
	}
	return list
}

// networkTally counts what all points came to.
type networkTally struct {
	mu                                      sync.Mutex
	points, duplicates, losses, differences int
}

// A way to Stripe that loses, delays, tears apart, repeats or mixes up one call of
// a command, whichever it is, costs nobody a second payment and loses none: once
// it is well again, the program ends the month as if nothing had been. The calls
// are those that a month without a fault is seen to make, so a new kind of call is
// a new point.
func TestTheNetworkCostsNobodyMoney(t *testing.T) {
	t.Parallel()
	whole := os.Getenv("BILLING_PROOF") != ""
	var tally networkTally
	t.Cleanup(func() {
		t.Logf("%d points: %d duplicates, %d losses, %d differences", tally.points, tally.duplicates, tally.losses, tally.differences)
	})
	for _, month := range networkMonths() {
		if !whole && month.sampled == "" {
			continue
		}
		t.Run(month.name, func(t *testing.T) {
			t.Parallel()
			ref := month.record(t)
			points := ref.sample
			if whole {
				points = ref.points
			}
			for _, p := range points() {
				t.Run(p.name(), func(t *testing.T) {
					t.Parallel()
					p.try(t, &tally)
				})
			}
		})
	}
}

// try lets one call meet its fault, finishes the month, and compares the end.
func (p networkPoint) try(t *testing.T, tally *networkTally) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the point alone: BILLING_PROOF=1 go test ./cmd/billing -count=1 -run '^%s$'", strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^"))
		}
	})
	o, proxy := p.month.begin(t)
	proxy.Inject(netproxy.Rule{Act: p.fault.act, Kind: p.kind, Skip: p.skip, Times: 1})
	first := p.meet(o, proxy)
	if proxy.Fired() != 1 {
		t.Errorf("the fault met nothing\n%s", first)
	}
	proxy.Clear()
	last := o.finish()
	tally.add(t, p.month.judge(o, last, p.repeats()), cmp.Diff(p.month.end, o.networkEnd()))
	if !p.repeats() {
		o.mustHaveCountedSends()
	}
	for key, bodies := range o.bodiesByKey() {
		if len(bodies) != 1 {
			t.Errorf("%s: %d different bodies", key, len(bodies))
		}
	}
	o.mustBeWhole()
	if strings.Contains(first.stdout+first.stderr, "_secret_") {
		t.Error("a client secret is printed")
	}
	if t.Failed() {
		t.Logf("the command that met it\n%s", first)
	}
}

// repeats reports whether the proxy sends a POST twice that left the program once.
func (p networkPoint) repeats() bool {
	return p.kind == stripeemu.OpCreate && slices.Contains([]netproxy.Act{netproxy.RepeatFirst, netproxy.RepeatSecond, netproxy.RepeatAtOnce}, p.fault.act)
}

// meet runs the command into the fault.
func (p networkPoint) meet(o *office, proxy *netproxy.Proxy) outcome {
	o.t.Helper()
	process := o.start(p.month.command...)
	if p.fault.act == netproxy.HoldRequest || p.fault.act == netproxy.HoldAnswer {
		eventually(o.t, "the call is held", func() bool { return proxy.Held() > 0 || process.ended() })
		o.advance(30 * time.Second)
		switch p.fault.then {
		case thenCut:
			proxy.Cut()
		case thenKilled:
			process.kill()
			o.run(p.month.command...)
			proxy.Release()
		default:
			proxy.Release()
		}
	}
	r := process.wait()
	if !slices.Contains([]int{exitOK, exitNeedsPerson, exitUnreachable, exitUnknown, -1}, r.code) {
		o.t.Errorf("a network that fails once is no reason for this exit\n%s", r)
	}
	return r
}

func (p process) ended() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// add counts a point by what the oracle says of its end, and by how that differs
// from the end of a month over a network that is well.
func (n *networkTally) add(t *testing.T, verdict oracle.Verdict, diff string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.points++
	n.duplicates += len(verdict.Duplicates)
	n.losses += len(verdict.Losses)
	n.differences += len(verdict.Differences)
	if !verdict.OK() {
		t.Errorf("the oracle: %s", verdict)
	}
	if diff != "" {
		n.differences++
		t.Errorf("it does not end as over a network that is well:\n%s", diff)
	}
}
