package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// Defaults of a run.
const (
	DefaultRate        = 25 // sends a second: Stripe's own default for one endpoint
	DefaultLease       = 2 * time.Minute
	DefaultWait        = 15 * time.Minute // longer than the lease, so that a dead owner is outlived
	DefaultTimeout     = 20 * time.Hour
	DefaultSendsPerRun = 6
)

// Options is everything that a run depends on besides the ledger and Stripe.
type Options struct {
	Job      ledger.Job
	Period   ledger.Period
	Location *time.Location
	Owner    string
	Build    string
	// Livemode is the key's mode, in which every payment must be.
	Livemode bool
	// Outbox tells what the run changes; nil tells nobody.
	Outbox *ledger.Outbox
	// Early lets a period be run that has not ended, Unclosed one that is not
	// closed, AllowEmpty one without anything to bill.
	// AllowOld one that ended long ago, Uninvoiced one with usage that is not invoiced.
	Early, Unclosed, AllowEmpty, AllowOld, Uninvoiced bool
	// Limits are what the plan is held against before it is recorded.
	Limits Limits
	// RequireApproval refuses a plan that nobody approved; Drift is by how many
	// accounts it may differ from the approved one.
	RequireApproval bool
	Drift           int64
	// Breaker is the share of the last 200 sends that may be refused or unknown,
	// 0 for any.
	Breaker float64
	// Canary is how many charges are sent first, 0 for none; CanaryDeclines and
	// CanaryFailures are the shares of them that may be declined, and refused or
	// unknown.
	Canary                         int
	CanaryDeclines, CanaryFailures float64
	// Rate is sends a second, 0 unlimited. Concurrency is sends in flight, 0
	// follows the latency.
	Rate        float64
	Concurrency int
	// Lease, Wait and Timeout are those of the claim.
	Lease, Wait, Timeout time.Duration
	// SendsPerRun bounds how often this run sends one charge.
	SendsPerRun int
	// ExpectMin is how many charges a month has at least; a finished period with
	// fewer settled ones needs a person. 0 expects nothing.
	ExpectMin int64
	// Claimed is told once, when this run owns the period. It must not block: money
	// waits for it. nil is nobody.
	Claimed func(ledger.Run)
	// Identify makes sure that the key belongs to the ledger's Stripe account.
	// It is asked before anything is claimed.
	Identify func(context.Context) error
	// Settle looks at Stripe for what is past its window, and refreshes what is
	// under way. run is nil if nobody owns the period: it is done. nil leaves it
	// all alone.
	Settle func(ctx context.Context, run *ledger.Run, alive func()) (Settled, error)
	// ExitCode tells the code of an error, for the attempt's history.
	ExitCode func(error) int
	// Progress is told how the work gets on.
	Progress func(Progress)
}

// Settled is what a look at Stripe came to.
type Settled struct {
	Settled, Renewed int64
	Warnings         []string
}

// Progress is one step of a long piece of work.
type Progress struct {
	Phase       string // look, record, reconcile, charge
	Done, Total int64
}

// Result is what a run came to.
type Result struct {
	Run         ledger.Run
	Summary     ledger.Summary
	Findings    []ledger.Finding
	AlreadyDone bool
	// Claimed says that this run owned the period, so that Run is its own.
	Claimed  bool
	Recorded int64
	Sent     int64
	Settled  int64
	Renewed  int64
	Warnings []string
}

// Runner runs one period of one job.
type Runner struct {
	pool    *pgxpool.Pool
	charger *gateway.Charger
	finder  *gateway.Finder
	log     *slog.Logger
	opts    Options

	run      ledger.Run
	heart    *heart
	clock    clock
	recorded int64
	renewed  int64
	warnings []string
	// canaryDone is set once the first few charges went well.
	canaryDone bool
	sent       atomic.Int64
	settled    atomic.Int64
	total      int64
	measured   float64 // sends a second, of the last batch
}

// NewRunner wires a run.
func NewRunner(pool *pgxpool.Pool, client *gateway.Client, log *slog.Logger, opts Options) *Runner {
	if opts.Progress == nil {
		opts.Progress = func(Progress) {}
	}
	if opts.Claimed == nil {
		opts.Claimed = func(ledger.Run) {}
	}
	return &Runner{pool: pool, charger: client.Charger(), finder: client.Finder(), log: log, opts: opts}
}

// maxRounds bounds how often one run starts over because invoices arrived while
// it worked.
const maxRounds = 10

var (
	errMore    = errors.New("invoices arrived while the period was charged")
	errTimeout = fmt.Errorf("the run's time ran out: %w", context.DeadlineExceeded)
)

// Run works on the period until it is done, or says why it can't be. Running it
// again is always safe. The error is nil only if the period is done and nobody
// is needed.
func (r *Runner) Run(ctx context.Context) (Result, error) {
	if done, err := r.alreadyDone(ctx); done || err != nil {
		if err == nil {
			err = r.refresh(ctx)
		}
		return r.result(ctx, done, err)
	}
	if err := r.mayStart(ctx); err != nil {
		return r.result(ctx, false, err)
	}
	if err := r.opts.Identify(ctx); err != nil {
		return r.result(ctx, false, err)
	}
	if err := r.setClock(ctx); err != nil {
		return r.result(ctx, false, err)
	}
	done, err := r.claim(ctx)
	if done || err != nil {
		return r.result(ctx, done, err)
	}
	err = r.work(ctx)
	return r.result(ctx, false, err)
}

// work does everything that needs the claim, and gives it up at the end.
func (r *Runner) work(ctx context.Context) error {
	owned, lose := context.WithCancelCause(ctx)
	// A moment less than the claim's own deadline, so that the run notices first
	// that its time is over, and not that the claim is lost.
	owned, cancel := context.WithTimeoutCause(owned, r.opts.Timeout-min(r.opts.Timeout/10, 5*time.Second), errTimeout)
	defer cancel()
	r.heart = &heart{pool: r.pool, run: r.run, lease: r.opts.Lease, log: r.log}
	beating := sync.WaitGroup{}
	beating.Go(func() {
		defer r.recoverBug("the heartbeat", lose)
		r.heart.beat(owned, lose)
	})
	err := r.rounds(owned)
	if cause := context.Cause(owned); err != nil && cause != nil {
		err = cause
	}
	lose(nil)
	beating.Wait()
	if errors.Is(err, ledger.ErrClaimLost) {
		return err
	}
	// What remains must be written also after an interruption.
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancelLast()
	if finishErr := r.giveUp(last, err); finishErr != nil {
		return finishErr
	}
	return err
}

// rounds records and charges until finish finds nothing more to do.
func (r *Runner) rounds(ctx context.Context) error {
	for range maxRounds {
		if err := r.recordIfNeeded(ctx); err != nil {
			return err
		}
		if err := r.settle(ctx, &r.run); err != nil {
			return err
		}
		if err := r.canary(ctx); err != nil {
			return err
		}
		if err := r.charge(ctx, nil); err != nil {
			return err
		}
		if err := r.finish(ctx); !errors.Is(err, errMore) {
			return err
		}
	}
	// They arrive faster than they are charged; the next run goes on.
	return &UnsettledError{}
}

func (r *Runner) recordIfNeeded(ctx context.Context) error {
	return r.patiently(ctx, "record", func(ctx context.Context) error {
		needed, err := r.somethingToRecord(ctx)
		if err != nil || !needed {
			return err
		}
		return r.record(ctx)
	})
}

// finish waits for live leases, compares what is billable with what is recorded
// once more, and gives the claim up: done only if nothing is pending.
func (r *Runner) finish(ctx context.Context) error {
	if err := r.outliveLeases(ctx); err != nil {
		return err
	}
	// A heartbeat that waits for the row until it is done would take the end of
	// this run for a takeover.
	r.heart.pause()
	defer r.heart.resume()
	return r.patiently(ctx, "finish", func(ctx context.Context) error {
		err := r.tryFinish(ctx)
		if errors.Is(err, ledger.ErrClaimLost) && r.finished(ctx) {
			return nil // its commit was not seen
		}
		return err
	})
}

// finished reports that this run itself gave its claim up.
func (r *Runner) finished(ctx context.Context) bool {
	run, err := ledger.ReadRun(ctx, r.pool, r.run.Job, r.run.Period)
	return err == nil && run.RunID == r.run.RunID && run.State != ledger.RunClaimed
}

func (r *Runner) tryFinish(ctx context.Context) error {
	return ledger.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		if err := r.run.Lock(ctx, tx); err != nil {
			return err
		}
		s, err := ledger.Summarize(ctx, tx, r.run.Job, r.run.Period)
		if err != nil {
			return err
		}
		if s.Unrecorded > 0 {
			return errMore
		}
		state := ledger.RunDone
		if s.Count(ledger.ChargePending) > 0 {
			state = ledger.RunFailed
		}
		return r.end(ctx, tx, state, r.verdict(state, s))
	})
}

// giveUp ends an attempt that could not finish, so that the next start need not
// wait for the lease. If the work did finish, there is nothing left to give up.
func (r *Runner) giveUp(ctx context.Context, cause error) error {
	if cause == nil {
		return nil
	}
	err := ledger.InTx(ctx, r.pool, func(tx pgx.Tx) error { return r.end(ctx, tx, ledger.RunFailed, cause) })
	if errors.Is(err, ledger.ErrClaimLost) || ledger.IsUnreachable(err) {
		return nil
	}
	return err
}

func (r *Runner) end(ctx context.Context, tx pgx.Tx, state ledger.RunState, cause error) error {
	return r.run.Finish(ctx, tx, state, ledger.Outcome{
		ExitCode: r.opts.ExitCode(cause), Recorded: r.recorded, Sent: r.sent.Load(), Settled: r.settled.Load(), Renewed: r.renewed,
	})
}

// outliveLeases waits for rows that another process may send right now: after a
// takeover the old owner's last permits are still good for a moment.
func (r *Runner) outliveLeases(ctx context.Context) error {
	for {
		leased := false
		err := r.patiently(ctx, "look for live leases", func(ctx context.Context) (err error) {
			leased, err = ledger.HasLeases(ctx, r.pool, r.run.Job, r.run.Period)
			return err
		})
		if err != nil || !leased {
			return err
		}
		r.alive()
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// result reads the ledger after the work: the exit code depends on it alone,
// unless something more urgent went wrong.
func (r *Runner) result(ctx context.Context, alreadyDone bool, err error) (Result, error) {
	res := Result{
		Warnings: r.warnings,
		Run:      r.run, AlreadyDone: alreadyDone, Claimed: r.run.Attempt > 0, Recorded: r.recorded,
		Sent: r.sent.Load(), Settled: r.settled.Load(), Renewed: r.renewed,
	}
	patience := 10 * time.Minute
	if ctx.Err() != nil {
		patience = 20 * time.Second // somebody wants it to end
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	readErr := ledger.InReadTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
		if run, err := ledger.ReadRun(ctx, tx, r.opts.Job, r.opts.Period); err == nil {
			res.Run = run
		}
		if res.Summary, err = ledger.Summarize(ctx, tx, r.opts.Job, r.opts.Period); err != nil {
			return err
		}
		if res.Findings, err = ledger.OpenFindings(ctx, tx, r.opts.Job, r.opts.Period); err != nil {
			return err
		}
		earlier, err := ledger.EarlierOpen(ctx, tx, r.opts.Job, r.opts.Period)
		for _, p := range earlier {
			res.Warnings = append(res.Warnings, fmt.Sprintf("period %s has invoices and no done run: billing run --period %s", p, p))
		}
		res.Warnings = append(res.Warnings, skippedWarnings(res.Summary)...)
		return err
	})
	switch {
	case err != nil && !errors.Is(err, errTimeout):
		return res, err
	case readErr != nil:
		return res, readErr
	}
	return res, r.verdict(res.Run.State, res.Summary)
}

func (r *Runner) alive() {
	if r.heart != nil {
		r.heart.alive()
	}
}

// permit is how long a claimed row may be sent: never longer than the lease, so
// that a run that lost its claim has nothing left to send.
func (r *Runner) permit() time.Duration { return min(ledger.PermitLife, r.opts.Lease) }

func (r *Runner) countSend() {
	n := r.sent.Add(1)
	r.opts.Progress(Progress{Phase: "charge", Done: n, Total: r.total})
}

// speed remembers what the last batch came to.
func (r *Runner) speed(n int64, took time.Duration) {
	if n > 0 && took > 0 {
		r.measured = float64(n) / took.Seconds()
	}
}

// recoverBug turns a panic in a goroutine into a bug report that stops the run.
func (r *Runner) recoverBug(doing string, halt context.CancelCauseFunc) {
	if p := recover(); p != nil {
		halt(fmt.Errorf("a bug in %s: %v\n%s", doing, p, debug.Stack()))
	}
}

// newRunID names this process's work on the period.
func newRunID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
