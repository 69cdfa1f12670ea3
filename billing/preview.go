package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
)

// PreviewOptions ask for a preview.
type PreviewOptions struct {
	Job    ledger.Job
	Period ledger.Period
	Limits Limits
	// Uninvoiced is the run's.
	Uninvoiced bool
	// Rate is sends a second, 0 unlimited; Timeout is how long a run may take.
	Rate    float64
	Timeout time.Duration
	// Each gets every account of this period and of the last one; nil is nobody.
	Each func(PreviewRow) error
	// Progress is told how many rows were read.
	Progress func(rows int64)
}

// PreviewRow is what becomes of one account, for a list.
type PreviewRow struct {
	AccountID, Name string
	// Todo is charge, skip, recorded (nothing more is decided) or gone.
	Todo   string
	Reason string // why it is skipped
	// State is the charge's, empty if it is not recorded.
	State               ledger.ChargeState
	Currency            string
	Minor, LastMinor    int64 // in minor units
	LastCurrency        string
	Change              string // new, gone, up, down, same, moved, or empty
	StripeCustomer, Pay string
}

// Preview is what a run of a period would do, decided on one read-only snapshot.
type Preview struct {
	// Plan is the whole period's, Todo what is not recorded yet: what a run would
	// record now.
	Plan Plan
	Todo []ledger.StateSum
	// Summary is the ledger as it stands.
	Summary ledger.Summary
	Comparison
	// Records says that a run would record something, which is when its gates look.
	Records bool
	// Violations are the gates that would stop the run, Approval that of the plan, or
	// else the last one.
	Violations []Violation
	Approval   *ledger.Approval
	// Pauses are what somebody paused, the whole job first: it is not sent.
	Pauses []ledger.Pause
	// ExpiredCards counts accounts whose card has expired; some are named.
	ExpiredCards   int64
	ExpiredCardsOf []string
	// Sends is how many charges a run would send; Takes how long, Fits whether
	// that ends within the window and the deadline.
	Sends int64
	Takes time.Duration
	Fits  bool
}

// NewPreview decides every billable row of a period as a run would, and writes and
// sends nothing.
func NewPreview(ctx context.Context, pool *pgxpool.Pool, o PreviewOptions) (Preview, error) {
	var v Preview
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	err := ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error {
		if err := v.decide(ctx, tx, o); err != nil {
			return err
		}
		return v.look(ctx, tx, o)
	})
	v.estimate(o)
	return v, err
}

// decide reads every billable row once.
func (v *Preview) decide(ctx context.Context, tx pgx.Tx, o PreviewOptions) error {
	plan, todo := newPlanner(o.Job, o.Period), newPlanner(o.Job, o.Period)
	plan.bare, todo.bare = true, true
	c, err := newComparing(ctx, tx, o.Job, o.Period)
	if err != nil {
		return err
	}
	var row *ledger.Billable
	var dec ledger.Decision
	if o.Each != nil {
		c.each = func(now, last *ledger.PlainCharge) error { return o.Each(previewRow(row, dec, now, last)) }
	}
	err = ledger.EachBillable(ctx, tx, o.Job, o.Period, func(rows []ledger.Billable) error {
		for i := range rows {
			row = &rows[i]
			if dec, err = plan.add(row); err != nil {
				return err
			}
			if row.Recorded == "" || row.IsDecidedAgain() {
				if _, err := todo.add(row); err != nil {
					return err
				}
				v.Records = v.Records || row.Recorded == "" || dec.Reason != row.SkippedFor
			}
			if row.Recorded == ledger.ChargeVoid {
				continue
			}
			if err := c.add(ctx, plainOf(row, dec)); err != nil {
				return err
			}
		}
		o.Progress(plan.rows)
		return nil
	})
	if err != nil {
		return err
	}
	row = nil
	if v.Comparison, err = c.end(ctx); err != nil {
		return err
	}
	v.Plan, v.Todo = plan.plan(), todo.plan().Sums
	return nil
}

// plainOf is a row as it will be recorded, or was.
func plainOf(b *ledger.Billable, dec ledger.Decision) ledger.PlainCharge {
	now := ledger.PlainCharge{AccountID: b.AccountID, Currency: dec.Currency, AmountMinor: dec.AmountMinor, State: dec.State, Reason: dec.Reason}
	if b.Recorded != "" && !b.IsDecidedAgain() {
		now.State, now.Reason, now.AmountMinor = b.Recorded, b.SkippedFor, b.RecordedMinor
	}
	return now
}

func previewRow(b *ledger.Billable, dec ledger.Decision, now, last *ledger.PlainCharge) PreviewRow {
	var r PreviewRow
	if last != nil {
		r.AccountID, r.LastMinor, r.LastCurrency = last.AccountID, last.AmountMinor, last.Currency
	}
	if now == nil {
		r.Todo, r.Change, r.Currency = "gone", "gone", r.LastCurrency
		return r
	}
	r.AccountID, r.Name, r.Currency, r.Minor, r.State = b.AccountID, b.Name, now.Currency, now.AmountMinor, b.Recorded
	r.StripeCustomer, r.Pay = b.StripeCustomer, b.PaymentMethod
	switch {
	case b.Recorded != "" && !b.IsDecidedAgain():
		r.Todo, r.Reason = "recorded", b.SkippedFor
	case dec.State == ledger.ChargePending:
		r.Todo = "charge"
	default:
		r.Todo, r.Reason = "skip", dec.Reason
	}
	r.Change = changeOf(now, last)
	return r
}

// changeOf names in what an account differs from the last period.
func changeOf(now, last *ledger.PlainCharge) string {
	charged, before := now.State != ledger.ChargeSkipped, last != nil && last.State != ledger.ChargeSkipped
	switch {
	case !charged && before:
		return "gone"
	case !charged:
		return ""
	case !before:
		return "new"
	case now.Currency != last.Currency:
		return "moved"
	case now.AmountMinor > last.AmountMinor:
		return "up"
	case now.AmountMinor < last.AmountMinor:
		return "down"
	}
	return "same"
}

// look reads what the ledger says besides.
func (v *Preview) look(ctx context.Context, tx pgx.Tx, o PreviewOptions) (err error) {
	if v.Summary, err = ledger.Summarize(ctx, tx, o.Job, o.Period); err != nil {
		return err
	}
	if v.ExpiredCards, v.ExpiredCardsOf, err = ledger.ExpiredCards(ctx, tx, o.Job, o.Period, largestShown); err != nil {
		return err
	}
	if v.Pauses, err = ledger.OpenPauses(ctx, tx, o.Job); err != nil {
		return err
	}
	approval, err := ledger.ReadApproval(ctx, tx, o.Job, o.Period, v.Plan.Hash)
	if err == nil {
		v.Approval = &approval
	} else if !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	if err := v.lookForUsage(ctx, tx, o); err != nil || !v.Records {
		return err
	}
	limits := o.Limits.Check(v.Comparison)
	if v.Approval != nil && v.Approval.Plan == v.Plan.Hash {
		limits = o.Limits.caps(v.Comparison)
	}
	v.Violations = append(v.Violations, limits...)
	return nil
}

// lookForUsage says that a run would be stopped by usage that is not invoiced. A period that
// is done is not run.
func (v *Preview) lookForUsage(ctx context.Context, tx pgx.Tx, o PreviewOptions) error {
	run, err := ledger.ReadRun(ctx, tx, o.Job, o.Period)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	if o.Uninvoiced || run.State == ledger.RunDone {
		return nil
	}
	left, err := usageLeft(ctx, tx, o.Job, o.Period)
	if err != nil || !left {
		return err
	}
	v.Violations = []Violation{{"usage_not_invoiced", "--uninvoiced", "", usageLeftText(o.Period) + fmt.Sprintf(": billing invoice --period %s", o.Period)}}
	return nil
}

// estimate says how long the sends take at the rate.
func (v *Preview) estimate(o PreviewOptions) {
	for _, s := range v.Todo {
		if s.State == ledger.ChargePending {
			v.Sends += s.Count
		}
	}
	v.Sends += v.Summary.Count(ledger.ChargePending) - v.Summary.Expired
	if o.Rate > 0 {
		v.Takes = time.Duration(float64(v.Sends) / o.Rate * float64(time.Second))
	}
	v.Fits = v.Takes <= min(o.Timeout, ledger.Window-ledger.RequestLife)
}
