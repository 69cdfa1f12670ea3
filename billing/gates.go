package billing

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// maxListed is how many accounts an error names.
const maxListed = 20

// compareRecorded compares what is recorded of a period, this transaction's rows
// included, with the last period.
func compareRecorded(ctx context.Context, tx pgx.Tx, job ledger.Job, period ledger.Period, alive func()) (Comparison, error) {
	c, err := newComparing(ctx, tx, job, period)
	if err != nil {
		return Comparison{}, err
	}
	rows, err := ledger.PlainCharges(ctx, tx, "period_charges", job, period)
	if err != nil {
		return Comparison{}, err
	}
	for {
		row, err := rows.Peek(ctx)
		if err != nil {
			return Comparison{}, err
		}
		if row == nil {
			break
		}
		if err := c.add(ctx, *row); err != nil {
			return Comparison{}, err
		}
		if rows.Take(); c.Rows%10_000 == 0 {
			alive()
		}
	}
	if err := rows.Close(ctx); err != nil {
		return Comparison{}, err
	}
	return c.end(ctx)
}

// gate holds what was just recorded, in the same transaction, against the limits
// and the approval. An error takes all of it back: nothing is frozen and no window
// has opened.
func (r *Runner) gate(ctx context.Context, tx pgx.Tx) error {
	approved, err := r.approved(ctx, tx)
	if err != nil {
		return err
	}
	c, err := compareRecorded(ctx, tx, r.run.Job, r.run.Period, r.alive)
	if err != nil {
		return err
	}
	violations := r.opts.Limits.Check(c)
	if approved {
		// Somebody looked at the plan itself; what was capped on purpose stays so.
		violations = r.opts.Limits.caps(c)
	}
	if len(violations) > 0 {
		return stopped(r.run.Period, violations)
	}
	if c.Last == "" && !approved {
		return r.firstPeriod(c)
	}
	return nil
}

// firstPeriod has nothing to compare with: with a live key somebody must say how
// much is right.
func (r *Runner) firstPeriod(c Comparison) error {
	var uncapped []string
	for _, currency := range currenciesOf(c) {
		if !r.opts.Limits.isCapped(currency) {
			uncapped = append(uncapped, currency)
		}
	}
	if len(uncapped) == 0 {
		return nil
	}
	if !r.opts.Livemode {
		r.warn(fmt.Sprintf("%s is the first period: there is nothing to compare it with, and no cap on %s", r.run.Period, strings.Join(uncapped, ", ")))
		return nil
	}
	var flags []string
	for _, currency := range uncapped {
		flags = append(flags, "--max-total "+currency+"=N")
	}
	return &StoppedError{
		Gate: "first_period",
		Msg:  fmt.Sprintf("%s is the first period: there is nothing to compare it with, and no cap on %s; nothing was recorded", r.run.Period, strings.Join(uncapped, ", ")),
		Hint: fmt.Sprintf("look: billing preview --period %s; then billing run --period %s %s, or billing approve", r.run.Period, r.run.Period, strings.Join(flags, " ")),
	}
}

func (r *Runner) warn(text string) {
	r.log.Warn(text)
	r.warnings = append(r.warnings, text)
}

// approved reports whether the plan is one that somebody approved, or has drifted
// from it by no more than is allowed.
func (r *Runner) approved(ctx context.Context, tx pgx.Tx) (bool, error) {
	approval, err := ledger.ReadApproval(ctx, tx, r.run.Job, r.run.Period, "")
	none := errors.Is(err, ledger.ErrNotFound)
	if err != nil && !none {
		return false, err
	}
	if none && !r.opts.RequireApproval {
		return false, nil
	}
	plan, drift, err := r.drift(ctx, tx, approval.Plan)
	if err != nil {
		return false, err
	}
	if !none && drift.accounts > 0 {
		// A plan that was approved before the last one may have come back.
		if approval, err = ledger.ReadApproval(ctx, tx, r.run.Job, r.run.Period, plan); err != nil {
			return false, err
		}
		if approval.Plan == plan {
			return true, nil
		}
	}
	approve := fmt.Sprintf("billing approve --period %s --plan %s --by NAME", r.run.Period, plan)
	switch {
	case none:
		return false, &StoppedError{
			Gate: "not_approved", Msg: fmt.Sprintf("the plan of %s is not approved; nothing was recorded", r.run.Period),
			Hint: fmt.Sprintf("look: billing preview --period %s; then %s", r.run.Period, approve),
		}
	case drift.accounts <= r.opts.Drift:
		return true, nil
	case !r.opts.RequireApproval:
		r.warn(fmt.Sprintf("plan %s of %s was approved, and it is %s now: %s", approval.Plan, r.run.Period, plan, drift.text()))
		return false, nil
	}
	return false, &StoppedError{
		Gate: "plan_drifted",
		Msg: fmt.Sprintf("plan %s of %s was approved by %s, and it is %s now: %s; nothing was recorded",
			approval.Plan, r.run.Period, approval.ApprovedBy, plan, drift.text()),
		Hint: fmt.Sprintf("look: billing preview --period %s; then %s, or billing run --period %s --drift %d", r.run.Period, approve, r.run.Period, drift.accounts),
	}
}

// drifted is in what a plan is not the approved one.
type drifted struct {
	accounts int64
	lines    []string
}

func (d *drifted) add(text string) {
	if d.accounts++; len(d.lines) < maxListed {
		d.lines = append(d.lines, text)
	}
}

func (d *drifted) text() string {
	text := plural(d.accounts, "account differs", "accounts differ")
	if len(d.lines) > 0 {
		text += "\n   " + strings.Join(d.lines, "\n   ")
	}
	if more := d.accounts - int64(len(d.lines)); more > 0 {
		text += fmt.Sprintf("\n   and %d more", more)
	}
	return text
}

// drift computes the plan of everything that is billable, and compares it with an
// approved one, account by account, if it is another.
func (r *Runner) drift(ctx context.Context, tx pgx.Tx, approved string) (plan string, d drifted, err error) {
	p := newPlanner(r.run.Job, r.run.Period)
	p.bare = true
	amounts, err := ledger.ApprovedAmounts(ctx, tx, r.run.Job, r.run.Period, approved)
	if err != nil {
		return "", d, err
	}
	m := merging{amounts: amounts, drifted: &d}
	err = ledger.EachBillable(ctx, tx, r.run.Job, r.run.Period, func(rows []ledger.Billable) error {
		r.alive()
		for i := range rows {
			dec, amount, err := p.addAmount(&rows[i])
			if err != nil {
				return err
			}
			if err := m.next(ctx, ledger.ApprovedAmount{AccountID: rows[i].AccountID, Amount: amount.String(), Currency: dec.Currency}); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = m.rest(ctx)
	}
	if err == nil {
		err = amounts.Close(ctx)
	}
	return p.plan().Hash, d, err
}

// merging walks a plan and an approved one side by side.
type merging struct {
	amounts *ledger.Cursor[ledger.ApprovedAmount]
	drifted *drifted
}

func (m *merging) next(ctx context.Context, now ledger.ApprovedAmount) error {
	for {
		was, err := m.amounts.Peek(ctx)
		switch {
		case err != nil:
			return err
		case was == nil || was.AccountID > now.AccountID:
			m.drifted.add(fmt.Sprintf("%s: %s %s, not in the approved plan", now.AccountID, now.Amount, now.Currency))
			return nil
		case was.AccountID == now.AccountID:
			if *was != now {
				m.drifted.add(fmt.Sprintf("%s: %s %s, approved were %s %s", now.AccountID, now.Amount, now.Currency, was.Amount, was.Currency))
			}
			m.amounts.Take()
			return nil
		}
		m.drifted.add(fmt.Sprintf("%s: gone, approved were %s %s", was.AccountID, was.Amount, was.Currency))
		m.amounts.Take()
	}
}

func (m *merging) rest(ctx context.Context) error {
	for {
		was, err := m.amounts.Peek(ctx)
		if err != nil || was == nil {
			return err
		}
		m.drifted.add(fmt.Sprintf("%s: gone, approved were %s %s", was.AccountID, was.Amount, was.Currency))
		m.amounts.Take()
	}
}
