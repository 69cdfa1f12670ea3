package reconcile

import (
	"fmt"

	"github.com/chargeonce/billing/ledger"
)

// NextAbout is what to type about a finding, "" once it is resolved.
func NextAbout(f ledger.FindingState) string {
	resolve := fmt.Sprintf("billing resolve --finding %d --why W --as ", f.ID)
	switch {
	case f.Order == ledger.RefundPending:
		return resolve + "refund --yes"
	case !f.Open():
		return ""
	case f.InReview() && f.PaymentIntent == "":
		return resolve + "release|void"
	case f.InReview():
		return resolve + "accept|refund|release|void"
	case f.Kind == "processing_long":
		return "billing reconcile --period " + string(f.Period)
	case f.Kind == "missing":
		return "billing show --period " + string(f.Period) + " --account " + ShellWord(f.AccountID)
	case f.PaymentIntent != "" && f.PaysFor == "" && f.Severity == ledger.SeverityAct:
		return resolve + "refund|accept"
	}
	return resolve + "accept"
}
