package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// Types that columns of billing.billable may have.
var (
	textTypes    = []string{"text", "character varying", "character", "name", "citext"}
	accountTypes = append(slices.Clone(textTypes), "uuid", "bigint", "integer", "smallint")
	wholeTypes   = []string{"bigint", "integer", "smallint"}
	amountTypes  = append(slices.Clone(wholeTypes), "numeric")
)

// billableTypes is the interface to a company's own tables.
var billableTypes = []struct {
	column string
	types  []string
}{
	{"job", textTypes}, {"period", textTypes}, {"account_id", accountTypes}, {"amount", amountTypes}, {"currency", textTypes},
	{"description", textTypes}, {"stripe_account", textTypes}, {"stripe_customer", textTypes}, {"payment_method", textTypes},
	{"name", textTypes}, {"email", textTypes}, {"status", textTypes},
}

const viewTodo = "make the view billing.billable as docs/own-tables.md says"

// checkBillable compares the view with what runs read, and then asks it that.
func (d *doctor) checkBillable(ctx context.Context) finding {
	columns, err := ledger.ReadBillableColumns(ctx, d.pool)
	if err != nil {
		return broken(err, "")
	}
	if len(columns) == 0 {
		return misset(viewTodo, "there is no view billing.billable")
	}
	types := map[string]string{}
	for _, c := range columns {
		types[c.Name] = c.Type
	}
	var wrong []string
	for _, want := range billableTypes {
		switch have, there := types[want.column]; {
		case !there:
			wrong = append(wrong, "has no column "+want.column)
		case !slices.Contains(want.types, have):
			wrong = append(wrong, fmt.Sprintf("has %s as %s: want %s", want.column, have, want.types[0]))
		}
	}
	if len(wrong) > 0 {
		return misset(viewTodo, "billing.billable %s", strings.Join(wrong, ", and "))
	}
	if err := ledger.TryBillable(ctx, d.pool, d.job, "2000-01"); err != nil {
		return broken(err, "the owner of the view needs SELECT on what it reads; its columns must be what runs can read")
	}
	if slices.Contains(wholeTypes, types["amount"]) {
		return worth("if they are cents: amount / 100.0 in the view", "amounts of billing.billable are whole numbers, and it must give dollars, euros, not cents")
	}
	return fine("billing.billable has the columns and types that runs read")
}

// openPeriods are those that a run may still have to record.
func (d *doctor) openPeriods(ctx context.Context, tx pgx.Tx) ([]string, error) {
	var open []string
	if d.period != "" {
		open = append(open, string(d.period))
	}
	if zone, err := zoneOf(d.run); err == nil {
		now, err := ledger.Now(ctx, tx)
		if err != nil {
			return nil, err
		}
		open = append(open, string(ledger.PeriodOf(now, zone).Previous()))
	}
	list, err := ledger.ReadPeriods(ctx, tx, d.job, shownPeriods)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.State != ledger.RunDone {
			open = append(open, string(p.Period))
		}
	}
	slices.Sort(open)
	return slices.Compact(open), nil
}

// checkInvoices looks at what is to be billed: one row an account, and amounts that
// can be charged. A view over large tables may take too long for that.
func (d *doctor) checkInvoices(ctx context.Context) finding {
	var (
		open            []string
		kinds           []ledger.BillableKind
		period, account string
	)
	err := ledger.InReadTx(ctx, d.pool, func(tx pgx.Tx) (err error) {
		if open, err = d.openPeriods(ctx, tx); err != nil {
			return err
		}
		if kinds, err = ledger.ReadBillableKinds(ctx, tx, d.job, open); err != nil {
			return err
		}
		period, account, err = ledger.FindBillableTwice(ctx, tx, d.job, open)
		if errors.Is(err, ledger.ErrNotFound) {
			return nil
		}
		return err
	})
	switch {
	case ctx.Err() != nil:
		return worth("", "billing.billable takes longer than %s for %s: not checked", checkTime, strings.Join(open, ", "))
	case err != nil:
		return broken(err, "")
	case period != "":
		err := fmt.Errorf("billing.billable has two rows for account %s in period %s", clean(account), period)
		return broken(inputError{err}, "one account has one invoice a period: add them up in the view")
	}
	return judge(open, kinds)
}

// judge says what is odd about rows.
func judge(open []string, kinds []ledger.BillableKind) finding {
	var odd []string
	var rows, skipped int64
	for _, k := range kinds {
		rows += k.Rows
		what := oddity(k)
		if what == "" {
			continue
		}
		if k.Nameless {
			err := fmt.Errorf("billing.billable has %s without an account id in period %s", plural(k.Rows, "row", "rows"), k.Period)
			return broken(inputError{err}, "mend the view: a run refuses the whole period")
		}
		skipped += k.Rows
		if len(odd) < maxNamed {
			odd = append(odd, fmt.Sprintf("%s of %s %s", plural(k.Rows, "row", "rows"), k.Period, what))
		}
	}
	periods := strings.Join(open, ", ")
	switch {
	case skipped > 0:
		return worth("mend them before the run: it charges the others and skips these", "%s", strings.Join(odd, "; "))
	case rows == 0:
		return fine("nothing is billable in %s", periods)
	}
	return fine("%s in %s, one an account, with amounts that can be charged", plural(rows, "row", "rows"), periods)
}

// oddity is why rows of a kind can't be charged, "" if nothing speaks against it.
func oddity(k ledger.BillableKind) string {
	if k.Nameless {
		return "have no account"
	}
	example := fmt.Sprintf(" (account %s)", clean(k.Example))
	currency, err := money.ParseCurrency(k.Currency)
	switch {
	case err != nil:
		return "with the currency " + fmt.Sprintf("%q", clean(shorten(k.Currency))) + example
	case k.Digits == nil:
		return "without a number as amount" + example
	}
	if _, err := money.ToMinor(decimal.New(1, -*k.Digits), currency); err != nil {
		return fmt.Sprintf("with fractions finer than %s has%s", strings.ToUpper(k.Currency), example)
	}
	return ""
}
