package main

import (
	"fmt"
	"strings"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger"
)

// maxShownProblems bounds how many accounts are listed for people; --json has more.
const maxShownProblems = 20

// usageInvoicesJSON is what invoice adds to --json.
type usageInvoicesJSON struct {
	New            int64                 `json:"new"`
	Changed        int64                 `json:"changed"`
	Replaced       int64                 `json:"replaced"` // imported invoices
	Unchanged      int64                 `json:"unchanged"`
	Removed        int64                 `json:"removed"`
	Sums           []invoiceSumJSON      `json:"sums"`     // of all invoices from usage
	Problems       []usageProblemJSON    `json:"problems"` // the first thousand
	ProblemCount   int64                 `json:"problem_count"`
	Differing      []usageDifferenceJSON `json:"differing"` // charged invoices that would be others today
	DifferingCount int64                 `json:"differing_count"`
	Changes        []usageChangeJSON     `json:"changes"`        // the first twenty with another amount or currency
	OtherCurrency  int64                 `json:"other_currency"` // changed to another currency
	Joined         int64                 `json:"joined"`         // accounts that came after the month was invoiced
	Missed         []string              `json:"missed_periods"` // earlier months with usage that was never invoiced
	CompleteAt     string                `json:"complete_at"`
	CountedThrough string                `json:"counted_through"`
	Settle         string                `json:"settle"`
	Closed         *closeJSON            `json:"closed,omitempty"`
}

type usageProblemJSON struct {
	AccountID string `json:"account_id"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	ToDo      string `json:"to_do"`
}

type usageDifferenceJSON struct {
	AccountID string `json:"account_id"`
	Charged   string `json:"charged"`
	Today     string `json:"today"`
}

type usageChangeJSON struct {
	AccountID string `json:"account_id"`
	Old       string `json:"old"`
	New       string `json:"new"`
}

func usageInvoicesToJSON(d invoicedUsage) usageInvoicesJSON {
	out := usageInvoicesJSON{New: d.New, Changed: d.Changed, Replaced: d.Replaced, Unchanged: d.Unchanged, Removed: d.Removed,
		Sums: []invoiceSumJSON{}, Problems: []usageProblemJSON{}, ProblemCount: d.ProblemCount, Differing: []usageDifferenceJSON{}, DifferingCount: d.Frozen,
		CompleteAt: rfc3339(&d.State.CompleteAt), CountedThrough: rfc3339(d.State.Through), Settle: d.State.Settle.String(), Closed: closeToJSON(d.close)}
	for _, s := range d.Sums {
		out.Sums = append(out.Sums, invoiceSumJSON{s.Currency, s.Count, moneyText(s.Amount.String(), s.Currency)})
	}
	for _, p := range d.Problems {
		detail, todo := problemText(p)
		out.Problems = append(out.Problems, usageProblemJSON{p.AccountID, p.Code, detail, todo})
	}
	out.Changes, out.OtherCurrency, out.Joined, out.Missed = []usageChangeJSON{}, d.moved(), d.Joined, []string{}
	for _, c := range d.Changes {
		out.Changes = append(out.Changes, usageChangeJSON{c.AccountID, amountText(c.OldAmount, c.OldCurrency), amountText(c.NewAmount, c.NewCurrency)})
	}
	for _, p := range d.State.Missed {
		out.Missed = append(out.Missed, string(p))
	}
	for _, f := range d.Differing {
		out.Differing = append(out.Differing, usageDifferenceJSON{f.AccountID, amountText(f.OldAmount, f.OldCurrency), amountText(f.NewAmount, f.NewCurrency)})
	}
	return out
}

func amountText(amount, currency string) string { return moneyText(amount, currency) + " " + currency }

// problemText says why an account has no invoice, and what to type.
func problemText(p ledger.UsageProblem) (why, todo string) {
	switch p.Code {
	case ledger.ProblemImported:
		return "an invoice of " + show(p.Detail) + " is in the way",
			"to take the usage instead, add --replace; to keep that one, leave the account out"
	case ledger.ProblemImportedCharged:
		return "an invoice of " + show(p.Detail) + " is in the way, and it is charged",
			"while nothing was paid: billing void, then billing invoice --replace; else leave the account out, and bill its usage with the next period"
	case string(pricing.CodeNoPrice):
		return p.Detail, "add it to the list, with unit_price: \"0\" if it is free: billing import prices --file F"
	case string(pricing.CodeTooLarge):
		return p.Detail, "correct the prices; if they are right, leave the account out, and bill it in portions, by imported invoices of later periods"
	case string(pricing.CodeOtherCurrency):
		return p.Detail, "set the account's currency back for this month; or leave the account out, and bill it by an imported invoice of the next period"
	case "no_account", "no_currency":
		return p.Detail, "billing import accounts --file F"
	default: // no_price_list
		return p.Detail, "add a list: billing import prices --file F"
	}
}

func (d invoicedUsage) text(req ledger.UsageInvoicing) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage of %s is counted up to %s; complete since %s (settle %s)\n", req.Period, timeText(d.State.Through), timeText(&d.State.CompleteAt), d.State.Settle)
	all := d.New + d.Changed + d.Replaced + d.Unchanged
	if d.New+d.Changed+d.Replaced+d.Removed == 0 {
		fmt.Fprintf(&b, "%s from usage, nothing changed\n", plural(all, "invoice", "invoices"))
	} else {
		fmt.Fprintf(&b, "%s from usage: %d new, %d changed, %d unchanged\n", plural(all, "invoice", "invoices"), d.New, d.Changed+d.Replaced, d.Unchanged)
	}
	for _, s := range d.Sums {
		fmt.Fprintf(&b, "  %s: %s, %s\n", s.Currency, plural(s.Count, "invoice", "invoices"), amountText(s.Amount.String(), s.Currency))
	}
	d.listChanges(&b)
	if d.Replaced > 0 {
		fmt.Fprintf(&b, "in place of imported invoices: %d\n", d.Replaced)
	}
	if d.Removed > 0 {
		fmt.Fprintf(&b, "removed, because no usage is left of them: %s: %s\n", plural(d.Removed, "invoice", "invoices"), shownIDs(d.RemovedIDs, d.Removed))
	}
	d.listFrozen(&b)
	d.listProblems(&b)
	switch {
	case req.Try:
		b.WriteString(nothingDone)
	case d.ProblemCount > 0 && d.close != nil:
		fmt.Fprintf(&b, "%s stays closed, with the older invoices of these accounts: %s\n", req.Period, closeText(*d.close))
	case d.ProblemCount > 0:
		fmt.Fprintf(&b, "%s is not closed: accounts are missing; mend them, and type billing invoice --period %s again; or leave them out: billing close --period %s\n",
			req.Period, req.Period, req.Period)
	case d.close != nil:
		fmt.Fprintf(&b, "%s is closed: %s\n", req.Period, closeText(*d.close))
		if d.Run != ledger.RunDone {
			fmt.Fprintf(&b, "next: billing preview --period %s\n", req.Period)
		}
	}
	return b.String()
}

// listChanges shows what became of invoices that were there before.
func (d invoicedUsage) listChanges(b *strings.Builder) {
	for _, c := range d.Changes {
		fmt.Fprintf(b, "  account %s: %s, was %s\n", show(c.AccountID), amountText(c.NewAmount, c.NewCurrency), amountText(c.OldAmount, c.OldCurrency))
	}
	if len(d.Changes) > 0 {
		b.WriteString(andMore(d.Changes[0].Total, len(d.Changes)))
	}
}

// moved counts invoices that got another currency.
func (d invoicedUsage) moved() int64 {
	if len(d.Changes) == 0 {
		return 0
	}
	return d.Changes[0].Moved
}

func (d invoicedUsage) listFrozen(b *strings.Builder) {
	if d.Frozen == 0 {
		return
	}
	fmt.Fprintf(b, "charged, and over another amount today: %s\n", plural(d.Frozen, "invoice", "invoices"))
	for _, f := range d.Differing[:min(len(d.Differing), maxShownProblems)] {
		fmt.Fprintf(b, "  account %s: charged with %s, %s today\n", show(f.AccountID), amountText(f.OldAmount, f.OldCurrency), amountText(f.NewAmount, f.NewCurrency))
	}
	b.WriteString(andMore(d.Frozen, min(len(d.Differing), maxShownProblems)))
}

func (d invoicedUsage) listProblems(b *strings.Builder) {
	if d.ProblemCount == 0 {
		return
	}
	fmt.Fprintf(b, "not invoiced: %s\n", plural(d.ProblemCount, "account", "accounts"))
	for _, p := range d.Problems[:min(len(d.Problems), maxShownProblems)] {
		why, todo := problemText(p)
		fmt.Fprintf(b, "  account %s: %s: %s\n", show(p.AccountID), why, todo)
	}
	b.WriteString(andMore(d.ProblemCount, min(len(d.Problems), maxShownProblems)))
}

// warn says what may surprise later.
func (d invoicedUsage) warn(a *app, out *result, req ledger.UsageInvoicing) {
	if !d.usesInvoices {
		a.warn(out, "the view billing.billable does not read billing.invoices, so runs do not see these invoices")
	}
	if d.State.SetAside > 0 {
		a.warn(out, "%s set aside and in no invoice: billing usage list", plural(d.State.SetAside, "event is", "events are"))
	}
	for _, p := range d.State.Missed {
		a.warn(out, "%s has usage that was never invoiced: billing invoice --period %s", p, p)
	}
	if n := d.moved(); n > 0 {
		a.warn(out, "%s of %s got another currency, which is the account's today", plural(n, "invoice", "invoices"), req.Period)
	}
	if d.Joined > 0 {
		a.warn(out, "%s no base fee: %s came, or %s changed, after %s was invoiced; a fee that is owed comes with billing import invoices: %s",
			plural(d.Joined, "active account owes", "active accounts owe"), map[bool]string{true: "it", false: "they"}[d.Joined == 1],
			map[bool]string{true: "was", false: "were"}[d.Joined == 1], req.Period, shownIDs(d.JoinedIDs, d.Joined))
	}
	if d.Idle > 0 {
		a.warn(out, "%s no usage, and no prices in %s currency, so no invoice: %s", plural(d.Idle, "active account has", "active accounts have"),
			map[bool]string{true: "its", false: "their"}[d.Idle == 1], shownIDs(d.IdleIDs, d.Idle))
	}
	if d.Run == ledger.RunDone && d.New > 0 {
		a.warn(out, "%s is done, so %s not in the ledger; to charge: billing reopen --period %s --why \"late invoice\", then billing run --period %s",
			req.Period, plural(d.New, "new invoice is", "new invoices are"), req.Period, req.Period)
	}
}
