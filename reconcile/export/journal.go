package export

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
)

// Role is what an account of the books is for.
type Role string

// The roles, in the order in which documents list them.
const (
	RoleReceivable Role = "receivable"
	RoleRevenue    Role = "revenue"
	RoleTax        Role = "tax"
	RoleCash       Role = "cash" // on Stripe's balance
	RoleFees       Role = "fees"
	RoleRefunds    Role = "refunds"
	RoleDisputes   Role = "disputes"
	RoleTransit    Role = "transit"    // paid at Stripe, not on its balance yet
	RoleConversion Role = "conversion" // between currencies
	RoleSuspense   Role = "suspense"   // what the ledger and Stripe do not agree on
)

// Roles are all of them.
var Roles = []Role{
	RoleReceivable, RoleRevenue, RoleTax, RoleCash, RoleFees, RoleRefunds, RoleDisputes, RoleTransit, RoleConversion, RoleSuspense,
}

// Chart says how the books call each account.
type Chart map[Role]string

var defaultChart = Chart{
	RoleReceivable: "Accounts receivable", RoleRevenue: "Revenue", RoleTax: "Tax payable", RoleCash: "Cash at Stripe",
	RoleFees: "Stripe fees", RoleRefunds: "Refunds", RoleDisputes: "Disputes", RoleTransit: "Cash in transit",
	RoleConversion: "Currency conversion", RoleSuspense: "Suspense",
}

// ParseChart reads names such as receivable=1400,revenue=8400; accounts that it does not
// name have English names.
func ParseChart(text string) (Chart, error) {
	chart := Chart{}
	for role, name := range defaultChart {
		chart[role] = name
	}
	for _, part := range strings.Split(text, ",") {
		if text == "" {
			break
		}
		role, name, found := strings.Cut(part, "=")
		role, name = strings.TrimSpace(role), strings.TrimSpace(name)
		switch {
		case !found || name == "" || strings.ContainsFunc(name, unicode.IsControl):
			return nil, fmt.Errorf("%q: want names such as receivable=1400,revenue=8400", part)
		case !slices.Contains(Roles, Role(role)):
			return nil, fmt.Errorf("%q: there is no such account; want one of %s", role, strings.Trim(fmt.Sprint(Roles), "[]"))
		}
		chart[Role(role)] = name
	}
	return chart, nil
}

// AuditStep is a line of an audit's sums: how what was invoiced in a currency became what
// Stripe's balance has of it. Totals are what the lines above them come to.
type AuditStep struct {
	Currency string
	What     string
	Count    int64
	Amount   decimal.Decimal
	Total    bool
	// Ledger says that it is a step between what was invoiced and what was paid by the
	// ledger's word, which the journal has from the charges themselves.
	Ledger bool
	// Days are the parts of it that moved on a day; what is left is a state, of the day
	// of the audit.
	Days []AuditDay
}

// AuditDay is the part of a step that moved on one day, such as 2026-11-03.
type AuditDay struct {
	Day    string
	Count  int64
	Amount decimal.Decimal
}

// The totals of an audit that a journal must come to.
const (
	TotalRecorded = "recorded"
	TotalPaid     = "paid in the ledger"
	TotalAtStripe = "paid at Stripe"
	TotalNet      = "net"
)

// stepRoles are the accounts against which cash moves on the balance. What was paid and
// nobody owed is in suspense, and leaves it when it is given back.
var stepRoles = map[string]Role{
	"paid in it from another currency": RoleConversion, "paid into another currency": RoleConversion, "not booked yet": RoleTransit,
	"refunded": RoleRefunds, "refunded, not owed": RoleSuspense, "disputed": RoleDisputes, "disputed, not owed": RoleSuspense, "fees": RoleFees,
}

// Entry is one booking: its lines come to zero.
type Entry struct {
	Day string // such as 2026-11-03
	// Standing says that it is a state as the audit saw it, which has no day of its own.
	Standing bool
	What     string
	Count    int64
	Currency string
	Lines    []Line
}

// Line is one account's part, positive for a debit.
type Line struct {
	Role   Role
	Amount decimal.Decimal
}

// Key names the entry for as long as it is about the same thing: a later journal of the
// period has the same keys, perhaps with other amounts. A state's key has no day.
func (e *Entry) Key(job ledger.Job, period ledger.Period) string {
	parts := []string{string(job), string(period), strings.NewReplacer(", ", "-", " ", "-").Replace(e.What), e.Day, e.Currency}
	if e.Standing {
		parts = slices.Delete(parts, 3, 4)
	}
	return strings.Join(parts, "/")
}

// BookEntries makes the entries of a journal from what happened to the charges and from
// the steps of an audit, nil without one.
func BookEntries(bookings []ledger.Booking, audited time.Time, steps []AuditStep) (entries []Entry) {
	for _, b := range bookings {
		e := Entry{Day: b.Day.Format(time.DateOnly), What: string(b.Kind), Count: b.Count, Currency: b.Currency}
		owed := []Line{{RoleReceivable, b.Amount}, {RoleRevenue, b.Tax.Sub(b.Amount)}, {RoleTax, b.Tax.Neg()}}
		switch b.Kind {
		case ledger.BookingInvoice:
			e.Lines = owed
		case ledger.BookingVoid:
			for _, l := range owed {
				e.Lines = append(e.Lines, Line{l.Role, l.Amount.Neg()})
			}
		case ledger.BookingPayment:
			e.Lines = []Line{{RoleCash, b.Amount}, {RoleReceivable, b.Amount.Neg()}}
		}
		entries = append(entries, e)
	}
	for _, s := range steps {
		if s.Total || s.Ledger {
			continue
		}
		role, known := stepRoles[s.What]
		if !known {
			role = RoleSuspense
		}
		entries = append(entries, stepEntries(s, role, audited)...)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return strings.Compare(a.Currency, b.Currency) })
	return slices.DeleteFunc(entries, func(e Entry) bool {
		return !slices.ContainsFunc(e.Lines, func(l Line) bool { return !l.Amount.IsZero() })
	})
}

// stepEntries are those of one step: by the days on which it moved, and what is left as of
// the audit.
func stepEntries(s AuditStep, role Role, audited time.Time) (entries []Entry) {
	book := func(e Entry, amount decimal.Decimal) {
		e.What, e.Currency, e.Lines = s.What, s.Currency, []Line{{RoleCash, amount}, {role, amount.Neg()}}
		entries = append(entries, e)
	}
	rest := s.Amount
	for _, d := range s.Days {
		book(Entry{Day: d.Day, Count: d.Count}, d.Amount)
		rest = rest.Sub(d.Amount)
	}
	if !rest.IsZero() {
		book(Entry{Day: audited.Format(time.DateOnly), Standing: true, Count: s.Count}, rest)
	}
	return entries
}

// TieError says that a journal does not come to what an audit saw.
type TieError struct {
	Currency, Total string
	Journal, Audit  decimal.Decimal
}

func (e *TieError) Error() string {
	return fmt.Sprintf("%s, %s: the journal comes to %s, the last audit to %s",
		e.Currency, e.Total, formatAmount(e.Journal, e.Currency), formatAmount(e.Audit, e.Currency))
}

// Tie holds entries against the totals of the audit that some of them are from. The
// error is a *TieError: the ledger changed since the audit.
func Tie(entries []Entry, steps []AuditStep) error {
	type key struct{ currency, total string }
	have := map[key]decimal.Decimal{}
	for _, e := range entries {
		for _, l := range e.Lines {
			switch {
			case e.What == string(ledger.BookingInvoice) && l.Role == RoleReceivable:
				k := key{e.Currency, TotalRecorded}
				have[k] = have[k].Add(l.Amount)
			case l.Role == RoleCash:
				for _, total := range totalsOf(e.What) {
					k := key{e.Currency, total}
					have[k] = have[k].Add(l.Amount)
				}
			}
		}
	}
	audited := map[string]bool{}
	for _, s := range steps {
		audited[s.Currency] = true
		if k := (key{s.Currency, s.What}); s.Total && !have[k].Equal(s.Amount) {
			return &TieError{s.Currency, s.What, have[k], s.Amount}
		}
	}
	for _, e := range entries {
		if !audited[e.Currency] {
			return &TieError{e.Currency, TotalRecorded, have[key{e.Currency, TotalRecorded}], decimal.Zero}
		}
	}
	return nil
}

// totalsOf are the totals that cash of an entry goes into.
func totalsOf(what string) []string {
	if what == string(ledger.BookingPayment) {
		return []string{TotalPaid, TotalAtStripe, TotalNet}
	}
	if _, balance := stepRoles[what]; balance {
		return []string{TotalNet}
	}
	return []string{TotalAtStripe, TotalNet}
}

// Journal is double entry: each line is a debit or a credit, and each entry, and so each
// currency, comes to zero.
var Journal = Table{"journal", []Column{
	{Name: "job", Kind: KindID}, {Name: "period", Kind: KindID}, {Name: "entry", Kind: KindInteger}, {Name: "date", Kind: KindDate},
	{Name: "what"}, {Name: "count", Kind: KindInteger}, {Name: "currency"}, {Name: "role"}, {Name: "account"},
	{Name: "debit", Kind: KindAmount, Currency: "currency"}, {Name: "credit", Kind: KindAmount, Currency: "currency"},
	{Name: "key", Kind: KindID},
}}

// WriteEntries writes a journal.
func WriteEntries(to Encoder, job ledger.Job, period ledger.Period, entries []Entry, chart Chart) (content Content, err error) {
	sums := NewSummer(Journal, "currency", "debit", "credit")
	for i, e := range entries {
		balance := decimal.Zero
		for _, l := range e.Lines {
			balance = balance.Add(l.Amount)
			if l.Amount.IsZero() {
				continue
			}
			row := Row{
				[]byte(job), []byte(period), strconv.AppendInt(nil, int64(i+1), 10), []byte(e.Day), []byte(e.What),
				strconv.AppendInt(nil, e.Count, 10), []byte(e.Currency), []byte(l.Role), []byte(chart[l.Role]), nil, nil,
				[]byte(e.Key(job, period)),
			}
			if l.Amount.IsPositive() {
				row[9] = []byte(l.Amount.String())
			} else {
				row[10] = []byte(l.Amount.Neg().String())
			}
			content.Rows++
			sums.Add(row)
			if err := to.Write(row); err != nil {
				return content, err
			}
		}
		if !balance.IsZero() {
			return content, fmt.Errorf("entry %d of the journal, %s in %s, is off by %s", i+1, e.What, e.Currency, balance)
		}
	}
	sums.each(func(currency string, rows int64, amounts []string) {
		content.Sums = append(content.Sums, Sum{Currency: currency, Rows: rows, Debit: amounts[0], Credit: amounts[1]})
	})
	return content, nil
}
