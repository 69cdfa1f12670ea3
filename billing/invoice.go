package billing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger"
)

// Problems of accounts that only the ledger and the prices together show.
const (
	problemNoAccount  = "no_account"
	problemNoCurrency = "no_currency"
	problemNoList     = "no_price_list"
)

// InvoiceUsage turns the usage of a period into invoices, and closes the period if
// every account has one: accounts with a problem are named in the result, the others
// are invoiced. It refuses before all usage is counted (*StoppedError), while a run
// works on the period (*ledger.HeldError), for a month that ended long ago, and in a ledger that was moved
// (*ledger.ClusterError); ledger.ErrNoInvoices means that nobody owes anything. The
// caller rolls back on an error.
func InvoiceUsage(ctx context.Context, tx pgx.Tx, req ledger.UsageInvoicing) (done ledger.UsageInvoices, err error) {
	state, err := ledger.BeginUsageInvoices(ctx, tx, req)
	if err != nil {
		return done, err
	}
	if err := mayInvoice(req, state); err != nil {
		return done, err
	}
	p := pricer{tx: tx, period: req.Period, lists: map[listKey]*pricing.List{}}
	if err := p.load(ctx); err != nil {
		return done, err
	}
	err = ledger.EachAccountUsage(ctx, tx, req.Job, req.Period, func(batch []ledger.AccountUsage) error {
		var priced []ledger.PricedAccount
		for _, a := range batch {
			out, err := p.account(ctx, a)
			if err != nil {
				return err
			}
			if out.Problem != "" || len(out.Lines) > 0 {
				priced = append(priced, out)
			}
		}
		return ledger.StageUsageInvoices(ctx, tx, priced)
	})
	if err != nil {
		return done, err
	}
	if done, err = ledger.MergeUsageInvoices(ctx, tx, req); err != nil {
		return done, err
	}
	done.State = state
	return done, ledger.FinishUsageInvoices(ctx, tx, req, done)
}

// mayInvoice refuses while some usage of the period may be missing.
func mayInvoice(req ledger.UsageInvoicing, s ledger.UsageState) error {
	hint := fmt.Sprintf("billing meter, then: billing invoice --period %s", req.Period)
	at := s.CompleteAt.UTC().Format(momentLayout)
	refuse := func(format string, args ...any) error {
		return &StoppedError{Gate: "usage_not_counted", Msg: fmt.Sprintf(format, args...), Hint: hint}
	}
	if !s.Counted {
		return refuse("no usage of %s is counted yet", req.Job)
	}
	if err := s.SameCluster(); err != nil {
		return err
	}
	if ended := s.CompleteAt.Add(-s.Settle); s.Now.Sub(ended) > maxAge && !req.AllowOld {
		return &StoppedError{
			Gate: "old_period",
			Msg:  fmt.Sprintf("period %s ended %d days ago", req.Period, int(s.Now.Sub(ended).Hours()/24)),
			Hint: "is the period typed right? To invoice it on purpose: --allow-old",
		}
	}
	switch {
	case s.Complete():
		return nil
	case s.CompleteAt.After(s.Now):
		hint = "from then on: " + hint
		return refuse("usage of %s is complete at %s, %s after the month's end in %s, and not before", req.Period, at, s.Settle, s.TimeZone)
	case s.Unfinished():
		return refuse("a count of usage was interrupted, or is under way")
	case s.Through == nil:
		return refuse("usage of %s is complete from %s on, and what is counted does not reach any moment yet", req.Period, at)
	default:
		return refuse("usage of %s is complete from %s on, and what was received up to %s is counted", req.Period, at, s.Through.UTC().Format(momentLayout))
	}
}

// momentLayout is how moments are written to people.
const momentLayout = "2006-01-02 15:04:05 UTC"

type listKey struct {
	from     ledger.Period
	currency string
	version  int
}

// pricer prices the accounts of one period. It reads each list once.
type pricer struct {
	tx     ledger.Querier
	period ledger.Period
	// current has the period's list of each currency.
	current map[string]*pricing.List
	lists   map[listKey]*pricing.List
	// months has the lists of earlier periods, for late usage.
	months map[ledger.Period]map[string]*pricing.List
}

func (p *pricer) load(ctx context.Context) (err error) {
	p.months = map[ledger.Period]map[string]*pricing.List{}
	p.current, err = p.month(ctx, p.period)
	return err
}

// month returns the lists that are valid in a month.
func (p *pricer) month(ctx context.Context, period ledger.Period) (map[string]*pricing.List, error) {
	if m, there := p.months[period]; there {
		return m, nil
	}
	kept, err := ledger.ReadPricesOf(ctx, p.tx, period)
	if err != nil {
		return nil, err
	}
	m := map[string]*pricing.List{}
	for _, k := range kept {
		if m[k.Currency], err = p.keep(k); err != nil {
			return nil, err
		}
	}
	p.months[period] = m
	return m, nil
}

func (p *pricer) keep(k ledger.PriceList) (*pricing.List, error) {
	key := listKey{k.ValidFrom, k.Currency, k.Version}
	if l, there := p.lists[key]; there {
		return l, nil
	}
	l, err := pricing.ReadContent(k.Content)
	if err != nil {
		return nil, fmt.Errorf("prices of %s from %s, version %d: %w", k.Currency, k.ValidFrom, k.Version, err)
	}
	l.Version = k.Version
	p.lists[key] = &l
	return &l, nil
}

// version returns one version of a list.
func (p *pricer) version(ctx context.Context, key listKey) (*pricing.List, error) {
	if l, there := p.lists[key]; there {
		return l, nil
	}
	kept, err := ledger.ReadPriceList(ctx, p.tx, key.from, key.currency, key.version)
	if err != nil {
		return nil, err
	}
	return p.keep(kept)
}

// account prices one account. Its invoice has no lines if it owes nothing at all.
func (p *pricer) account(ctx context.Context, a ledger.AccountUsage) (ledger.PricedAccount, error) {
	out := ledger.PricedAccount{AccountID: a.AccountID, Currency: a.Currency}
	list := p.current[a.Currency]
	switch {
	case !a.Known:
		out.Problem, out.Detail = problemNoAccount, "it has usage, and there is no such account"
		return out, nil
	case list == nil && len(a.Usage) == 0:
		out.Problem = ledger.ProblemIdle
		return out, nil
	case a.Currency == "":
		out.Problem, out.Detail = problemNoCurrency, "it has usage, and its account has no currency"
		return out, nil
	case list == nil:
		out.Problem, out.Detail = problemNoList, fmt.Sprintf("there are no prices in %s that are valid in %s", a.Currency, p.period)
		return out, nil
	}
	in, err := p.input(ctx, a, *list)
	if err != nil {
		return out, err
	}
	in.BaseFee = a.Active
	inv, err := in.Price()
	var problem *pricing.Problem
	if errors.As(err, &problem) {
		out.Problem, out.Detail = string(problem.Code), problem.Msg
		return out, nil
	}
	if a.Joined && len(a.Usage) == 0 && len(inv.Lines) > 0 {
		// It was not there when the month was invoiced; a month is not billed afterwards.
		out.Problem = ledger.ProblemJoined
		return out, nil
	}
	out.Amount, out.Lines = inv.Total.String(), linesOf(inv)
	out.Hash = hashOf(out)
	return out, err
}

// input is an account's usage as pricing takes it.
func (p *pricer) input(ctx context.Context, a ledger.AccountUsage, list pricing.List) (pricing.Account, error) {
	in := pricing.Account{ID: a.AccountID, List: list}
	for _, u := range a.Usage {
		quantity, err := decimal.NewFromString(u.Quantity)
		if err != nil {
			return in, fmt.Errorf("usage of account %q, %s: %w", a.AccountID, u.Metric, err)
		}
		if u.Kind == string(pricing.KindUsage) {
			in.Usage = append(in.Usage, pricing.Usage{Metric: u.Metric, Quantity: quantity})
			continue
		}
		before, err := decimal.NewFromString(u.Before)
		if err != nil {
			return in, fmt.Errorf("usage of account %q, %s: %w", a.AccountID, u.Metric, err)
		}
		late, err := p.lateList(ctx, u, list)
		if err != nil {
			return in, err
		}
		in.Late = append(in.Late, pricing.Late{Metric: u.Metric, FromPeriod: string(u.FromPeriod), List: late, Before: before, Quantity: quantity})
	}
	return in, nil
}

// lateList is the list that late usage is priced by: the one that its month was
// invoiced with; where that lacks the metric, or the account had no invoice then, the one that
// is valid in that month today. If there is none, an empty one says so.
func (p *pricer) lateList(ctx context.Context, u ledger.UsageOf, now pricing.List) (pricing.List, error) {
	currency := string(now.Currency)
	if u.ListVersion > 0 {
		used, err := p.version(ctx, listKey{u.ListFrom, u.ListCurrency, u.ListVersion})
		if err != nil {
			return pricing.List{}, err
		}
		if _, there := used.Metrics[u.Metric]; there {
			return *used, nil
		}
		currency = u.ListCurrency
	}
	month, err := p.month(ctx, u.FromPeriod)
	if err != nil {
		return pricing.List{}, err
	}
	if l := month[currency]; l != nil {
		return *l, nil
	}
	return pricing.List{ValidFrom: string(u.FromPeriod), Currency: now.Currency}, nil
}

// linesOf are an invoice's lines as the ledger keeps them.
func linesOf(inv pricing.Invoice) []ledger.InvoiceLine {
	var lines []ledger.InvoiceLine
	for i, l := range inv.Lines {
		lines = append(lines, ledger.InvoiceLine{
			Line: i + 1, Kind: string(l.Kind), Metric: l.Metric, FromPeriod: ledger.Period(l.FromPeriod),
			Before: l.Before.String(), Quantity: l.Quantity.String(), Included: l.Included.String(), UnitPrice: l.UnitPrice.String(),
			Exact: l.Exact.String(), Amount: l.Amount.String(), Currency: string(inv.Currency),
			ListFrom: ledger.Period(l.ListFrom), ListVersion: l.ListVersion,
		})
	}
	return lines
}

// hashOf is the fingerprint of an invoice with its lines.
func hashOf(a ledger.PricedAccount) [32]byte {
	parts := []string{a.AccountID, a.Amount, a.Currency}
	for _, l := range a.Lines {
		parts = append(parts, fmt.Sprintf("%+v", l))
	}
	return sha256.Sum256([]byte(strings.Join(parts, "\x1f")))
}
