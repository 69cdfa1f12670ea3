package reconcile

import (
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// Side says whose word a line of a sum is.
type Side string

// The sides.
const (
	SideInvoices Side = "invoices"
	SideLedger   Side = "ledger"
	SideStripe   Side = "stripe"
	SideBalance  Side = "balance"
)

// AuditSum is how what was invoiced in one currency became what Stripe's balance has
// of it: each line is signed, and each total is the sum of the lines above it.
type AuditSum struct {
	Currency string         `json:"currency"`
	Lines    []AuditSumLine `json:"lines"`
	// Days are the lines of the balance by the days on which money moved there. What is
	// not booked yet has no day.
	Days []AuditSumDay `json:"days,omitempty"`
}

// AuditSumDay is the part of a line that moved on one day, such as 2026-11-03, of the
// period's time zone. Count is of movements.
type AuditSumDay struct {
	What   string          `json:"what"`
	Day    string          `json:"day"`
	Count  int64           `json:"count"`
	Amount decimal.Decimal `json:"amount"`
}

// AuditSumLine is one step. Amount is in major units.
type AuditSumLine struct {
	Side   Side            `json:"side"`
	What   string          `json:"what"`
	Count  int64           `json:"count"`
	Amount decimal.Decimal `json:"amount"`
	Total  bool            `json:"total"`
}

// The lines in the order in which they lead from one side to the next. Each list ends
// in the total of all before it.
var (
	invoiceSteps = []string{"invoiced", "not recorded", "recorded, invoice gone", "recorded otherwise"}
	ledgerSteps  = []string{
		string(ledger.ChargeSkipped), string(ledger.ChargeDeclined), string(ledger.ChargeRejected), string(ledger.ChargeReview), string(ledger.ChargeHeld),
		string(ledger.ChargeVoid), string(ledger.ChargePending), string(ledger.ChargeActionRequired), string(ledger.ChargeProcessing),
	}
	stripeSteps = []string{
		ledger.FindingMissing, ledger.FindingAmountMismatch, ledger.FindingCurrencyMismatch, ledger.FindingWrongCustomer, ledger.FindingOrphan,
		ledger.FindingDuplicate, "paid late", "under way",
	}
	balanceSteps = []string{
		"paid in it from another currency", "paid into another currency", "not booked yet", "refunded", LineRefundedNotOwed,
		"disputed", LineDisputedNotOwed, "fees",
	}
)

// Lines of what went back of payments by which no charge is paid, such as of those that
// were made twice: nobody owed them, so that it is no loss.
const (
	LineRefundedNotOwed = "refunded, not owed"
	LineDisputedNotOwed = "disputed, not owed"
)

// step is a line while it is being added up.
type step struct {
	count  int64
	amount decimal.Decimal
	days   map[string]step // of a line of the balance
}

// sums are the lines of each currency, by what they are. They do not grow with the
// period.
type sums map[string]map[string]*step

func (s sums) add(currency, what string, count int64, amount decimal.Decimal) {
	if s[currency] == nil {
		s[currency] = map[string]*step{}
	}
	if s[currency][what] == nil {
		s[currency][what] = &step{}
	}
	s[currency][what].count += count
	s[currency][what].amount = s[currency][what].amount.Add(amount)
}

func major(minor int64, currency string) decimal.Decimal {
	return money.FromMinor(minor, money.Currency(currency))
}

// recorded is what a charge is about, nothing if that is no number.
func recorded(c *ledger.AuditCharge) (amount decimal.Decimal, currency string) {
	amount, err := decimal.NewFromString(c.Amount)
	if err != nil {
		amount = decimal.Zero
	}
	return amount, strings.ToLower(c.Currency)
}

func (s sums) invoices(lines []ledger.AuditLine) {
	for _, l := range lines {
		s.add(l.Currency, l.What, l.Count, l.Amount)
	}
}

// charge takes what was not charged off what was recorded; state is empty if it was.
func (s sums) charge(c *ledger.AuditCharge, state string) {
	if state != "" {
		amount, currency := recorded(c)
		s.add(currency, state, 1, amount.Neg())
	}
}

// unpaid is a charge that is paid in the ledger alone.
func (s sums) unpaid(c *ledger.AuditCharge, what string) {
	amount, currency := recorded(c)
	s.add(currency, what, 1, amount.Neg())
}

// payment is one that is paid at Stripe alone.
func (s sums) payment(what string, p *ledger.AuditPayment) {
	if p.Status == gateway.StatusSucceeded {
		s.add(p.Currency, what, 1, major(p.Received, p.Currency))
	}
}

// own is a payment of a charge, which is to be what was recorded.
func (s sums) own(c *ledger.AuditCharge, p *ledger.AuditPayment) {
	amount, currency := recorded(c)
	got := major(p.Received, p.Currency)
	switch {
	case p.Currency != currency:
		s.add(currency, ledger.FindingCurrencyMismatch, 1, amount.Neg())
		s.add(p.Currency, ledger.FindingCurrencyMismatch, 1, got)
	case !got.Equal(amount):
		s.add(currency, ledger.FindingAmountMismatch, 1, got.Sub(amount))
	}
}

// report lays the lines out, with what Stripe's own sums say: where they are not what
// the lines come to, that is a line of its own.
func (s sums) report(balance []ledger.BalanceSum) []AuditSum {
	paid := map[string]step{}
	for _, b := range balance {
		if b.Kind == "payment" {
			p := paid[b.Currency]
			p.count, p.amount = p.count+b.Count, p.amount.Add(major(b.Amount, b.Currency))
			paid[b.Currency] = p
		}
		s.booked(b)
	}
	for currency := range paid {
		s.add(currency, "invoiced", 0, decimal.Zero)
	}
	var out []AuditSum
	for currency := range s {
		if currency != "" {
			out = append(out, s.of(currency, paid[currency]))
		}
	}
	slices.SortFunc(out, func(x, y AuditSum) int { return strings.Compare(x.Currency, y.Currency) })
	return out
}

// addOn is add for what moved on one day.
func (s sums) addOn(day, currency, what string, count, moves int64, amount decimal.Decimal) {
	s.add(currency, what, count, amount)
	if day == "" {
		return
	}
	line := s[currency][what]
	if line.days == nil {
		line.days = map[string]step{}
	}
	line.days[day] = step{count: line.days[day].count + moves, amount: line.days[day].amount.Add(amount)}
}

// booked takes one sum of the balance to the lines of its currencies.
func (s sums) booked(b ledger.BalanceSum) {
	gross, fee := major(b.Gross, b.BalanceCurrency), major(b.Fee, b.BalanceCurrency)
	switch {
	case b.Kind == "payment" && b.BalanceCurrency == "":
		s.add(b.Currency, "not booked yet", b.Count, major(b.Amount, b.Currency).Neg())
	case b.Kind == "payment" && b.BalanceCurrency != b.Currency:
		s.addOn(b.Day, b.Currency, "paid into another currency", b.Count, b.Moves, major(b.Amount, b.Currency).Neg())
		s.addOn(b.Day, b.BalanceCurrency, "paid in it from another currency", b.Count, b.Moves, gross)
	case b.Kind == "refund" && b.Own:
		s.addOn(b.Day, b.BalanceCurrency, "refunded", b.Count, b.Moves, gross)
	case b.Kind == "refund":
		s.addOn(b.Day, b.BalanceCurrency, LineRefundedNotOwed, b.Count, b.Moves, gross)
	case b.Kind == "dispute" && b.Own:
		s.addOn(b.Day, b.BalanceCurrency, "disputed", b.Count, b.Moves, gross)
	case b.Kind == "dispute":
		s.addOn(b.Day, b.BalanceCurrency, LineDisputedNotOwed, b.Count, b.Moves, gross)
	}
	if b.BalanceCurrency != "" && b.Fee != 0 {
		s.addOn(b.Day, b.BalanceCurrency, "fees", b.Count, b.Moves, fee.Neg())
	}
}

// daysOf are the days of a line in their order.
func (s sums) daysOf(currency, what string) (list []AuditSumDay) {
	line := s[currency][what]
	if line == nil {
		return nil
	}
	for _, day := range slices.Sorted(maps.Keys(line.days)) {
		list = append(list, AuditSumDay{What: what, Day: day, Count: line.days[day].count, Amount: line.days[day].amount})
	}
	return list
}

// of writes the lines of one currency. Lines in which nothing is are left out.
func (s sums) of(currency string, stripe step) AuditSum {
	out := AuditSum{Currency: currency}
	running := decimal.Zero
	lines := func(side Side, steps []string) {
		for i, what := range steps {
			l := s[currency][what]
			if l == nil {
				l = &step{}
			}
			if l.count == 0 && l.amount.IsZero() && (side != SideInvoices || i > 0) {
				continue
			}
			running = running.Add(l.amount)
			out.Lines = append(out.Lines, AuditSumLine{Side: side, What: what, Count: l.count, Amount: l.amount})
		}
	}
	total := func(side Side, what string, count int64) {
		out.Lines = append(out.Lines, AuditSumLine{Side: side, What: what, Count: count, Amount: running, Total: true})
	}
	lines(SideInvoices, invoiceSteps)
	total(SideLedger, "recorded", 0)
	lines(SideLedger, ledgerSteps)
	total(SideLedger, "paid in the ledger", 0)
	lines(SideStripe, stripeSteps)
	if !running.Equal(stripe.amount) {
		out.Lines = append(out.Lines, AuditSumLine{Side: SideStripe, What: "unexplained", Count: 0, Amount: stripe.amount.Sub(running)})
		running = stripe.amount
	}
	total(SideStripe, "paid at Stripe", stripe.count)
	before := len(out.Lines)
	lines(SideBalance, balanceSteps)
	for _, what := range balanceSteps {
		out.Days = append(out.Days, s.daysOf(currency, what)...)
	}
	if len(out.Lines) > before {
		total(SideBalance, "net", 0)
	}
	return out
}
