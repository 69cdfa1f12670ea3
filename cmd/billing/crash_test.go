package main

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// Killed at ten random moments and run to the end, the month is what one clean
// run leaves.
func TestKilledTenTimesTheMonthIsChargedOnce(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	o := newOffice(t)
	o.imports(october, customers(400))
	for range 10 {
		p := o.start("run", "--period", october, "--rate", "400")
		until := o.emu.Posts() + rnd.IntN(40)
		eventually(t, "the run sends, or ends", func() bool {
			select {
			case <-p.Done():
				return true
			default:
				return o.emu.Posts() > until
			}
		})
		p.kill()
	}
	o.month(0)
	if got := o.states(october)["succeeded"]; got != 400 {
		t.Errorf("%d of 400 succeeded", got)
	}
	o.mustBeWhole()
}

// An owner that is frozen past its lease and taken over sends nothing after it
// wakes, its finish matches no row, and an answer that it already had counts.
func TestAFrozenOwnerRecordsItsAnswerAndSendsNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(50))
	const held = "a0010"
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Account: held, Times: 1})
	owner := o.start("run", "--period", october, "--concurrency", "1", "--json")
	eventually(t, "the tenth answer is held", func() bool { return o.emu.Held() == 1 })
	owner.signal(syscall.SIGSTOP)
	// Whoever asks again for that charge learns nothing, so that only the frozen
	// owner knows.
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Account: held})
	o.emu.Release()
	o.month(75, "--timeout", "10s")
	if got := o.state(held); got != "pending" {
		t.Fatalf("the charge is %s before its answer was recorded", got)
	}
	attempt, posts := one[int](o, `SELECT attempt FROM billing.job_runs`), o.emu.Posts()
	finished := one[string](o, `SELECT finished_at::text FROM billing.job_runs`)

	owner.signal(syscall.SIGCONT)
	r := owner.wait()
	if r.code != 75 {
		t.Errorf("the old owner: want exit 75\n%s", r)
	}
	if got := o.emu.Posts() - posts; got != 0 {
		t.Errorf("the old owner sent %d POSTs after it was taken over", got)
	}
	if got := o.state(held); got != "succeeded" {
		t.Errorf("the charge is %s although its owner had the answer", got)
	}
	if one[int](o, `SELECT attempt FROM billing.job_runs`) != attempt || one[string](o, `SELECT finished_at::text FROM billing.job_runs`) != finished {
		t.Error("the old owner changed the claim of the new one")
	}
	if got := one[string](o, `SELECT result FROM billing.job_run_attempts WHERE attempt = 1`); got != "taken_over" {
		t.Errorf("attempt 1 is kept as %s", got)
	}
	o.emu.ClearFaults()
	o.month(0)
	o.mustBeWhole()
}

// A process that stands still between its claim of rows and their sends, for
// longer than the window, does not send them when it wakes, whether another took
// its period over meanwhile or nobody did.
func TestAProcessFrozenBeforeItsSendsDoesNotSendThem(t *testing.T) {
	t.Parallel()
	for name, takenOver := range map[string]bool{"taken over": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(40))
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Skip: 2, Times: 1})
			owner := o.start("run", "--period", october, "--concurrency", "1")
			eventually(t, "an answer is held, and more rows are claimed than were sent", func() bool {
				return o.emu.Held() == 1 && one[int](o, `SELECT sum(sends) FROM billing.charges`) > o.emu.Posts()
			})
			owner.signal(syscall.SIGSTOP)
			eventually(t, "its permits end", func() bool {
				return one[bool](o, `SELECT max(lease_until) < billing.now() FROM billing.charges`)
			})
			o.advance(25 * time.Hour)
			if open := one[int](o, `SELECT count(*) FROM billing.charges WHERE billing.now() < window_opened_at + interval '23 hours'`); open != 0 {
				t.Fatalf("%d windows are still open: the test shows nothing", open)
			}
			if takenOver {
				// The other may send what it has proven absent, in a window of its own.
				if r := o.run("run", "--period", october); r.code != 4 && r.code != 75 {
					t.Errorf("the new owner: want exit 4 or 75\n%s", r)
				}
			}
			posts := o.emu.Posts()
			owner.signal(syscall.SIGCONT)
			o.emu.Release()
			if r := owner.wait(); r.code == 0 {
				t.Errorf("it says that all is done\n%s", r)
			}
			if got := o.emu.Posts() - posts; got != 0 {
				t.Errorf("%d POSTs left after the window", got)
			}
			o.mustHaveCountedSends()
			o.mustBeWhole()
		})
	}
}
