package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

// agedJSON is what is open for one reason, in --json of status.
type agedJSON struct {
	What       string `json:"what"`
	Count      int64  `json:"count"`
	Since      string `json:"since"`
	AgeSeconds int64  `json:"age_seconds"`
	AccountID  string `json:"account_id"` // of the oldest, empty for pending
	Next       string `json:"next"`
}

func (s *standing) agedJSON() []agedJSON {
	list := []agedJSON{}
	for _, i := range s.aged {
		list = append(list, agedJSON{i.What, i.Count, rfc3339(&i.Since), int64(s.now.Sub(i.Since).Seconds()), i.AccountID, s.nextFor(i)})
	}
	return list
}

// addAged lists what is open, with the age of the oldest and what to type.
func (s *standing) addAged(b *strings.Builder, a *app) {
	if len(s.aged) == 0 {
		return
	}
	t := a.newTable(table.Row{"open", "count", "oldest", "account", "what to type"}, 2)
	for _, i := range s.aged {
		t.AppendRow(table.Row{i.What, i.Count, ageText(s.now.Sub(i.Since)), clean(i.AccountID), clean(s.nextFor(i))})
	}
	fmt.Fprintf(b, "\n%s\n", t.Render())
}

// nextFor is the command about the oldest of what is open.
func (s *standing) nextFor(i ledger.AgedItem) string {
	of := fmt.Sprintf(" --period %s --account %s", s.period, reconcile.ShellWord(i.AccountID))
	switch i.What {
	case ledger.AgedFinding, string(ledger.ChargeReview):
		return fmt.Sprintf("billing findings --period %s", s.period)
	case string(ledger.ChargeHeld):
		return "billing release" + of + " --why W"
	case string(ledger.ChargeRejected):
		return "billing requeue" + of + " --why W"
	case string(ledger.ChargeActionRequired):
		return "billing show" + of
	case string(ledger.ChargeProcessing):
		return fmt.Sprintf("billing reconcile --period %s", s.period)
	}
	return fmt.Sprintf("billing run --period %s", s.period)
}
