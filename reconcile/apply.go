package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

func (r *Reconciler) alive() { r.opts.Alive() }

// step tells how far the look is.
func (r *Reconciler) step() {
	r.mu.Lock()
	r.report.stepped++
	done, total := r.report.stepped, r.total
	r.mu.Unlock()
	r.opts.Progress("reconcile", done, total)
}

// apply writes what was decided, a group at a time, and reports each charge.
func (r *Reconciler) apply(ctx context.Context, w Work, lookedAt time.Time, verdicts []verdict) error {
	if len(verdicts) == 0 {
		return nil
	}
	r.noteRestored(verdicts, lookedAt)
	if !r.opts.DryRun {
		if err := r.write(ctx, w, lookedAt, verdicts); err != nil {
			return err
		}
		r.alive()
	}
	if w.Act == ActCancel {
		verdicts = r.clear(verdicts)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range verdicts {
		r.tally(&verdicts[i])
		r.opts.Each(r.line(w, &verdicts[i]))
	}
	return nil
}

func (r *Reconciler) write(ctx context.Context, w Work, lookedAt time.Time, verdicts []verdict) error {
	if err := r.writeFound(ctx, w, verdicts); err != nil {
		return err
	}
	if err := r.writeFindings(ctx, verdicts); err != nil {
		return err
	}
	if err := r.writeAbsent(ctx, w, lookedAt, verdicts); err != nil {
		return err
	}
	if w.Act == ActCancel {
		return r.cancelOpen(ctx, w, verdicts)
	}
	return r.writeRequeues(ctx, w, lookedAt, verdicts)
}

func (r *Reconciler) writeFound(ctx context.Context, w Work, verdicts []verdict) error {
	var list []ledger.Found
	for _, v := range verdicts {
		if v.found != nil {
			list = append(list, *v.found)
		}
	}
	moved, err := ledger.SettleFound(ctx, r.pool, r.actor(w), list)
	if err != nil {
		return err
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.found != nil && !moved[v.charge.BillingKey] {
			v.outcome, v.found, v.done = OutcomeMovedOn, nil, "nothing: it was settled meanwhile"
		}
	}
	return nil
}

func (r *Reconciler) writeFindings(ctx context.Context, verdicts []verdict) error {
	if !slices.ContainsFunc(verdicts, func(v verdict) bool { return len(v.findings) > 0 }) {
		return nil
	}
	var opened int64
	err := ledger.InTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
		opened, err = openFindings(ctx, tx, verdicts)
		return err
	})
	r.mu.Lock()
	r.report.Findings += opened
	r.mu.Unlock()
	return err
}

// openFindings writes the findings of verdicts, and counts those that are new.
func openFindings(ctx context.Context, tx pgx.Tx, verdicts []verdict) (opened int64, err error) {
	for _, v := range verdicts {
		for _, f := range v.findings {
			isNew, err := ledger.OpenFinding(ctx, tx, f)
			if err != nil {
				return opened, err
			}
			if isNew {
				opened++
			}
		}
	}
	return opened, nil
}

// writeAbsent renews and holds. Without the claim it leaves everything as it is.
func (r *Reconciler) writeAbsent(ctx context.Context, w Work, lookedAt time.Time, verdicts []verdict) error {
	var list []ledger.Absent
	for _, v := range verdicts {
		if v.absent != nil {
			a := *v.absent
			if r.opts.Why != "" {
				a.Detail = r.opts.Why + " (" + a.Detail + ")"
			}
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil
	}
	moved := map[string]bool{}
	outcome, done := OutcomeMovedOn, "nothing: it changed during the look"
	if w.Run == nil {
		outcome, done = OutcomeBusy, "nothing: another run owns the period"
	} else {
		err := ledger.InQueueTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
			moved, err = w.Run.SettleAbsent(ctx, tx, r.opts.Person, lookedAt, list)
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.absent != nil && !moved[v.charge.BillingKey] {
			v.outcome, v.absent, v.done = outcome, nil, done
		}
	}
	return nil
}

func (r *Reconciler) writeRequeues(ctx context.Context, w Work, lookedAt time.Time, verdicts []verdict) error {
	for i := range verdicts {
		v := &verdicts[i]
		if !v.requeue {
			continue
		}
		if w.Run == nil {
			v.outcome, v.requeue, v.done = OutcomeBusy, false, "nothing: another run owns the period"
			continue
		}
		opened := false
		err := ledger.InTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
			opened, err = w.Run.Requeue(ctx, tx, v.anew, r.opts.Person, r.opts.Why, lookedAt)
			return err
		})
		if err != nil {
			return err
		}
		if !opened {
			v.outcome, v.requeue, v.done = OutcomeMovedOn, false, "nothing: it changed during the look"
		}
	}
	return nil
}

func (r *Reconciler) actor(w Work) ledger.Actor {
	by := ledger.Actor{Person: r.opts.Person, Outbox: r.opts.Outbox}
	if w.Rebuild {
		// The backup has lost what was told since, not the customers.
		by.Outbox = nil
	}
	if w.Run != nil {
		id := w.Run.RunID
		by.RunID = &id
	}
	if by.RunID == nil && by.Person == "" {
		id := uuid.Must(uuid.NewV7())
		by.RunID = &id
	}
	return by
}

// decideAnew asks what requeued charges are to ask for.
func (r *Reconciler) decideAnew(ctx context.Context, w Work, list []ledger.OpenCharge) (map[string]ledger.Requeue, error) {
	if !w.Act.opensTry() {
		return nil, nil
	}
	decided, err := r.opts.Decide(ctx, r.pool, w.Period, list)
	if err != nil {
		return nil, err
	}
	anew := make(map[string]ledger.Requeue, len(decided))
	for _, q := range decided {
		anew[q.Seen.AccountID] = q
	}
	return anew, nil
}

func (r *Reconciler) recordMissing(ctx context.Context, w Work, accounts []string, lookedAt time.Time) error {
	if r.opts.DryRun || len(accounts) == 0 {
		return nil
	}
	if w.Run == nil {
		return errors.New("a rebuild without the claim on the period")
	}
	var recorded int64
	err := ledger.InTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
		if err := w.Run.Lock(ctx, tx); err != nil {
			return err
		}
		// Their payments were seen, so that no window opens: it is over already, and
		// if this look ends early the next one settles them.
		recorded, err = r.opts.Record(ctx, tx, *w.Run, accounts, lookedAt.Add(-ledger.Window-ledger.RequestDead))
		return err
	})
	if err != nil {
		return fmt.Errorf("record what Stripe has payments for: %w", err)
	}
	r.mu.Lock()
	r.report.Recorded += recorded
	r.mu.Unlock()
	return nil
}

// tally counts what became of one charge.
func (r *Reconciler) tally(v *verdict) {
	r.report.add(v.outcome)
	switch {
	case v.found != nil && v.charge.State == ledger.ChargePending && v.outcome != OutcomeReview:
		r.report.Settled++
	case v.outcome == OutcomeRenewed, v.outcome == OutcomeRequeued:
		r.report.Renewed++
	}
	if (v.outcome == OutcomeWaiting || v.outcome == OutcomeInWindow && v.charge.State == ledger.ChargeHeld) && v.until != nil {
		r.report.waitUntil(*v.until)
	}
}

func (r *Reconciler) line(w Work, v *verdict) Line {
	l := Line{
		Outcome: v.outcome, Period: w.Period, AccountID: v.charge.AccountID, BillingKey: v.charge.BillingKey, Amount: v.charge.Amount,
		Currency: v.charge.Currency, PaymentIntent: v.paymentIntent, Found: v.seen, Done: v.done,
	}
	l.Next = cmp.Or(v.next, next(w, v))
	return l
}

// next is what to type about one charge.
func next(w Work, v *verdict) string {
	period := w.Period
	of := fmt.Sprintf(" --period %s --account %s", period, ShellWord(v.charge.AccountID))
	switch v.outcome {
	case OutcomeHeld:
		return "billing release" + of + " --why W"
	case OutcomeUnchanged:
		if v.charge.State == ledger.ChargeHeld {
			return "billing release" + of + " --why W"
		}
	case OutcomeReview, OutcomeRefused, OutcomeNotRecorded:
		return "billing show" + of
	case OutcomeRenewed, OutcomeRequeued:
		return "billing run --period " + string(period)
	case OutcomeBusy, OutcomeUnreadable:
		return again(w.Act, of, "billing reconcile --period "+string(period))
	case OutcomeWaiting, OutcomeInWindow:
		if v.until != nil && (v.outcome == OutcomeWaiting || v.charge.State == ledger.ChargeHeld) {
			return again(w.Act, of, "billing run --period "+string(period)) + "   # not before " + v.until.UTC().Format("2006-01-02 15:04 UTC")
		}
	}
	return ""
}

// again is the order that was given, or what to type if it was none.
func again(act Act, of, otherwise string) string {
	switch act {
	case ActRelease:
		return "billing release" + of + " --why W"
	case ActRequeue:
		return "billing requeue" + of + " --why W"
	case ActCancel, ActRetry:
		return "billing retry-declined" + of + " --why W"
	}
	return otherwise
}

// ShellWord quotes what a shell would take apart.
func ShellWord(s string) string {
	for _, c := range s {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '@' || c == '/' || c == ':'
		if !plain {
			return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return s
}
