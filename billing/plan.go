// Package billing runs the month: it decides what to charge, records it, sends
// it inside its window and finishes.
package billing

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"regexp"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// Reasons for which a charge is skipped. Those of MendableReasons are decided
// again by each run of the period; the bad ones need a person.
const (
	SkipZero            = "zero"
	SkipCredit          = "credit"
	SkipBelowMinimum    = "below_minimum"
	SkipNoPaymentMethod = "no_payment_method"
	SkipNoCustomer      = "no_customer"
	SkipNoAccount       = "no_account"
	SkipPaused          = "paused"
	SkipBadCurrency     = "bad_currency"
	SkipBadAmount       = "bad_amount"
	SkipBadAccountID    = "bad_account_id"
	// SkipBadStripeAccount is a connected account that is none, or that the key
	// may not use.
	SkipBadStripeAccount = "bad_stripe_account"
)

// decider turns billable rows into decisions. It has no clock and no state but a
// buffer, so that preview and run decide the same.
type decider struct {
	job    ledger.Job
	period ledger.Period
	// bare leaves the request out where only the decision is wanted.
	bare bool
	// try is whose request is written; 0 is the first.
	try int
	buf []byte
}

// decide says what becomes of one billable row. The amount returned is the
// invoice's in major units, for sums.
func (d *decider) decide(b *ledger.Billable) (ledger.Decision, decimal.Decimal) {
	dec := ledger.Decision{
		State: ledger.ChargeSkipped, Currency: b.Currency,
		BillingKey: ledger.BillingKey(d.job, d.period, b.AccountID),
	}
	currency, err := money.ParseCurrency(b.Currency)
	if err != nil {
		dec.Reason = SkipBadCurrency
	} else {
		dec.Currency = string(currency)
	}
	amount, amountErr := money.Parse(b.Amount)
	if ledger.CheckAccountID(b.AccountID) != nil {
		dec.Reason = SkipBadAccountID
		return dec, amount
	}
	if dec.Reason != "" {
		return dec, amount
	}
	minor, reason := minorUnits(amount, amountErr, currency)
	if reason == "" {
		reason = cannotPay(b)
	}
	if reason != "" {
		dec.Reason = reason
		return dec, amount
	}
	dec.State, dec.AmountMinor = ledger.ChargePending, minor
	if d.bare {
		return dec, amount
	}
	d.buf = gateway.AppendBody(d.buf[:0], gateway.BodyParams{
		Amount: minor, Currency: dec.Currency, Customer: b.StripeCustomer, PaymentMethod: b.PaymentMethod,
		Description: b.Description, BillingKey: dec.BillingKey, Job: string(d.job), Period: string(d.period),
		Account: b.AccountID, Try: max(d.try, 1),
	})
	dec.Body, dec.BodySHA256 = string(d.buf), sha256.Sum256(d.buf)
	return dec, amount
}

// minorUnits is the amount as Stripe counts it, or why it can't be charged.
func minorUnits(amount decimal.Decimal, err error, c money.Currency) (int64, string) {
	switch {
	case err != nil:
		return 0, SkipBadAmount
	case amount.IsZero():
		return 0, SkipZero
	case amount.IsNegative():
		return 0, SkipCredit
	}
	minor, err := money.ToMinor(amount, c)
	if err != nil {
		return 0, SkipBadAmount
	}
	if least, known := money.Minimum(c); known && minor < least {
		return 0, SkipBelowMinimum
	}
	return minor, ""
}

var stripeAccount = regexp.MustCompile(`^acct_[A-Za-z0-9_]{1,60}$`)

// cannotPay says what the account lacks.
func cannotPay(b *ledger.Billable) string {
	switch {
	case b.Status == "":
		return SkipNoAccount
	case b.Status != "active":
		return SkipPaused
	case b.StripeAccount != "" && !stripeAccount.MatchString(b.StripeAccount):
		return SkipBadStripeAccount
	case strings.TrimSpace(b.StripeCustomer) == "":
		return SkipNoCustomer
	case strings.TrimSpace(b.PaymentMethod) == "":
		return SkipNoPaymentMethod
	}
	return ""
}

// InputError says that what is to be billed contradicts itself; nothing was
// recorded.
type InputError struct{ msg string }

func (e *InputError) Error() string { return e.msg }

// errEnough ends a walk over rows early.
var errEnough = errors.New("enough")

// Plan is what a run would do or did record: counts and sums by state, reason
// and currency, and a hash of who pays how much.
type Plan struct {
	Sums []ledger.StateSum
	// Hash is over (account, amount, currency) of every billable row in the
	// order of accounts; a changed card does not change it.
	Hash string
	Rows int64
}

type sumKey struct {
	state            ledger.ChargeState
	reason, currency string
}

// planner adds a plan up, row by row.
type planner struct {
	decider
	sums map[sumKey]*ledger.StateSum
	hash hash.Hash
	line []byte
	last string
	rows int64
}

func newPlanner(job ledger.Job, period ledger.Period) *planner {
	return &planner{
		decider: decider{job: job, period: period},
		sums:    map[sumKey]*ledger.StateSum{}, hash: sha256.New(),
	}
}

// add decides one row and counts it. Two rows of one account are an error,
// because one of them would be lost.
func (p *planner) add(b *ledger.Billable) (ledger.Decision, error) {
	dec, _, err := p.addAmount(b)
	return dec, err
}

// addAmount is add, with the invoice's amount in major units.
func (p *planner) addAmount(b *ledger.Billable) (ledger.Decision, decimal.Decimal, error) {
	if b.Nameless {
		return ledger.Decision{}, decimal.Zero, &InputError{"billing.billable has a row without an account id in period " + string(p.period)}
	}
	if p.rows > 0 && p.last == b.AccountID {
		return ledger.Decision{}, decimal.Zero, &InputError{"billing.billable has two rows for account " + b.AccountID +
			" in period " + string(p.period) + ": one account has one invoice a period"}
	}
	p.rows++
	p.last = b.AccountID
	dec, amount := p.decide(b)
	key := sumKey{dec.State, dec.Reason, dec.Currency}
	sum := p.sums[key]
	if sum == nil {
		sum = &ledger.StateSum{State: dec.State, Reason: dec.Reason, Currency: dec.Currency}
		p.sums[key] = sum
	}
	sum.Count++
	sum.Amount = sum.Amount.Add(amount)
	sum.AmountMinor += dec.AmountMinor
	p.line = append(append(p.line[:0], b.AccountID...), 0)
	p.line = append(append(p.line, amount.String()...), 0)
	p.line = append(append(p.line, dec.Currency...), '\n')
	p.hash.Write(p.line)
	return dec, amount, nil
}

// skip takes a decision to charge back.
func (p *planner) skip(d ledger.Decision, reason string) ledger.Decision {
	d.State, d.Reason, d.AmountMinor, d.Body = ledger.ChargeSkipped, reason, 0, ""
	return d
}

func (p *planner) plan() Plan {
	plan := Plan{Hash: hex.EncodeToString(p.hash.Sum(nil))[:16], Rows: p.rows}
	for _, s := range p.sums {
		plan.Sums = append(plan.Sums, *s)
	}
	ledger.SortSums(plan.Sums)
	return plan
}
