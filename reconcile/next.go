package reconcile

import (
	"fmt"
	"strings"

	"github.com/chargeonce/billing/ledger"
)

// NextAbout is what to type about a finding, a line for each way there is, "" once it is
// resolved. What stands behind a # is a remark, to a shell too.
func NextAbout(f ledger.FindingState) string {
	period, of := string(f.Period), fmt.Sprintf("--period %s --account %s", f.Period, ShellWord(f.AccountID))
	as := func(ways ...string) string {
		for i, way := range ways {
			ways[i] = fmt.Sprintf("billing resolve --finding %d --why W --as %s", f.ID, way)
		}
		return strings.Join(ways, "\n")
	}
	switch {
	case f.Order == ledger.RefundPending:
		return as("refund --yes")
	case !f.Open():
		return ""
	case f.InReview() && f.PaymentIntent == "":
		return as("release", "void")
	case f.InReview():
		return as("accept", "refund", "release", "void")
	case f.Kind == "processing_long":
		return "billing reconcile --period " + period
	case f.Kind == ledger.FindingMissing:
		return "billing doctor   # the right account and mode?\nbilling show " + of + "   # the ids for Stripe's support"
	case f.Order == "" && (f.Kind == ledger.FindingOrphan || f.Kind == "not_recorded"):
		return "billing reconcile --period " + period + " --rebuild --why W   # once its invoice is imported\n" + as("refund", "accept")
	case f.Kind == ledger.FindingAdjacentDouble && f.PaysFor != "":
		return as("accept", "refund --amount A   # of the second")
	case f.PaymentIntent != "" && f.PaysFor == "" && f.Severity == ledger.SeverityAct:
		return as("refund", "accept")
	}
	return as("accept")
}
