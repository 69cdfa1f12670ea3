package reconcile

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// The lists that an audit reads.
const (
	listPayments = "payments"
	listRefunds  = "refunds"
	listDisputes = "disputes"
)

// clockMargin is more than Stripe's clock may be ahead of Postgres's: a payment that
// the ledger knew when the audit began may have been created later by that clock.
const clockMargin = 10 * time.Minute

// plan divides what there is to read into parts, once for all processes of the audit.
func (a *auditor) plan(ctx context.Context) ([]ledger.AuditList, error) {
	lists, err := a.audit.Lists(ctx, a.r.pool)
	if err != nil || len(lists) > 0 {
		a.estimate(lists)
		return lists, err
	}
	accounts := []string{""}
	known, err := ledger.StripeAccounts(ctx, a.r.pool, a.r.opts.Job, a.w.Period)
	if err != nil {
		return nil, err
	}
	for _, account := range known {
		if account != "" {
			accounts = append(accounts, account)
		}
	}
	sent, err := ledger.CountSent(ctx, a.r.pool, a.r.opts.Job, a.w.Period)
	if err != nil {
		return nil, err
	}
	a.total = sent/100 + 1
	to := a.audit.StartedAt.Add(clockMargin)
	add := func(list, account string, from, to time.Time) {
		lists = append(lists, ledger.AuditList{Part: len(lists) + 1, List: list, StripeAccount: account, CreatedFrom: from, CreatedTo: to})
	}
	for _, account := range accounts {
		from := a.audit.Horizon
		if parts := min(spanParts, int(a.total/pagesPerPart)); parts > 1 {
			bounds, err := ledger.SpanBounds(ctx, a.r.pool, a.r.opts.Job, a.w.Period, account, from, parts)
			if err != nil {
				return nil, err
			}
			for _, bound := range bounds {
				add(listPayments, account, from, bound)
				from = bound
			}
		}
		add(listPayments, account, from, to)
		add(listRefunds, account, a.audit.Horizon, to)
		add(listDisputes, account, a.audit.Horizon, to)
	}
	return lists, a.write(ctx, 0, func(ctx context.Context, tx pgx.Tx) error { return a.audit.AddLists(ctx, tx, lists) })
}

func (a *auditor) estimate(lists []ledger.AuditList) {
	for _, l := range lists {
		a.total += l.Pages
	}
}

// read reads every list from where it was left.
func (a *auditor) read(ctx context.Context, lists []ledger.AuditList) error {
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(spanParts)
	for _, l := range lists {
		if !l.Done {
			reads.Go(func() error { return a.readList(ctx, l) })
		}
	}
	return reads.Wait()
}

func (a *auditor) readList(ctx context.Context, l ledger.AuditList) error {
	span := gateway.Span{StripeAccount: l.StripeAccount, CreatedFrom: l.CreatedFrom, CreatedTo: l.CreatedTo, After: l.After}
	after := l.After
	returns := func(page []gateway.Return, meta gateway.Meta) error {
		noted := make([]ledger.AuditReturn, len(page))
		for i := range page {
			noted[i], after = noteReturn(&page[i]), page[i].ID
		}
		return a.page(ctx, l.Part, after, len(page), meta, func(ctx context.Context, tx pgx.Tx) error { return a.audit.NoteReturns(ctx, tx, noted) })
	}
	switch l.List {
	case listRefunds:
		return a.r.finder.Refunds(ctx, span, returns)
	case listDisputes:
		return a.r.finder.Disputes(ctx, span, returns)
	}
	return a.r.finder.Payments(ctx, span, func(page []gateway.Payment, meta gateway.Meta) error {
		noted := make([]ledger.AuditPayment, len(page))
		for i := range page {
			noted[i], after = a.notePayment(&page[i]), page[i].ID
		}
		return a.page(ctx, l.Part, after, len(page), meta, func(ctx context.Context, tx pgx.Tx) error {
			return a.audit.NotePayments(ctx, tx, l.StripeAccount, noted)
		})
	})
}

// page writes what a page showed, and that it was read, in one transaction: a killed
// audit goes on behind it.
func (a *auditor) page(ctx context.Context, part int, after string, objects int, meta gateway.Meta, note func(context.Context, pgx.Tx) error) error {
	if err := a.r.opts.CheckClock(ctx, meta.Date); err != nil {
		return err
	}
	err := a.writeIn(ctx, ledger.InQueueTx, 1, func(ctx context.Context, tx pgx.Tx) error {
		if err := note(ctx, tx); err != nil {
			return err
		}
		return a.audit.Read(ctx, tx, part, after, objects, meta.Last)
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pages++
	a.r.opts.Progress("audit", a.pages, max(a.pages, a.total))
	return err
}

func (a *auditor) notePayment(p *gateway.Payment) ledger.AuditPayment {
	n := ledger.AuditPayment{
		PaymentIntent: p.ID, BillingKey: p.BillingKey, Job: ledger.Job(p.Job), Period: ledger.Period(p.Period), AccountID: p.Account, Try: p.Try,
		Status: p.Status, Amount: p.Amount, Received: p.AmountReceived, Currency: p.Currency, StripeCustomer: p.Customer, Created: p.Created,
		BalanceCurrency: p.Balance.Currency, BalanceDigits: digitsOf(p.Balance.Currency), Gross: p.Balance.Amount, Fee: p.Balance.Fee, Net: p.Balance.Net,
	}
	if p.Balance.ID != "" {
		n.BookedAt, n.AvailableOn = &p.Balance.Created, &p.Balance.AvailableOn
	}
	if isKeyOf(p.BillingKey, a.r.opts.Job, a.w.Period) {
		// Any other metadata may have been edited.
		n.Job, n.Period = a.r.opts.Job, a.w.Period
	}
	if p.BillingKey == "" {
		n.Job, n.Period = "", "" // not by a key of ours, unless the ledger knows it
	}
	return n
}

// noteReturn adds up what one refund or dispute did to the balance.
func noteReturn(r *gateway.Return) ledger.AuditReturn {
	n := ledger.AuditReturn{
		ID: r.ID, Kind: string(r.Kind), PaymentIntent: r.PaymentIntent, Status: r.Status, Currency: r.Currency, Moves: []ledger.AuditMove{},
	}
	if r.Stands() {
		n.Amount = r.Amount
	}
	for _, m := range r.Balance {
		n.BalanceCurrency = m.Currency
		n.Gross += m.Amount
		n.Fee += m.Fee
		n.Moves = append(n.Moves, ledger.AuditMove{At: m.Created, Currency: m.Currency, Gross: m.Amount, Fee: m.Fee})
	}
	return n
}

// digitsOf is how many decimals Stripe's unit of a currency has.
func digitsOf(currency string) int {
	return int(money.Currency(currency).WireExponent())
}
