package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chargeonce/billing/reconcile"
)

// plansText shows refunds as they would be sent.
func (s *resolving) plansText(plans []reconcile.RefundPlan) string {
	var b strings.Builder
	for i := range plans {
		p := &plans[i]
		f := &p.Finding
		fmt.Fprintf(&b, "finding %d, %s of account %s for %s: %s of payment %s would be given back\n",
			f.ID, f.Kind, clean(f.AccountID), f.Period, p.Amount(), p.Payment.ID)
		switch {
		case p.Made != nil:
			fmt.Fprintf(&b, "   nothing would be sent: Stripe has refund %s (%s) already\n", p.Made.ID, p.Made.Status)
			continue
		case slices.ContainsFunc(plans[:i], func(x reconcile.RefundPlan) bool { return x.Payment.ID == p.Payment.ID && x.Whole() }):
			b.WriteString("   nothing would be sent: the refund above gives it back\n")
			continue
		case p.Order != nil:
			fmt.Fprintf(&b, "   ordered by %s at %s, sent %s, and its outcome is not known\n", clean(p.Order.OrderedBy), timeText(&p.Order.OrderedAt), times(p.Order.Sends))
		}
		b.WriteString(keyValues(
			[2]string{"   payment", fmt.Sprintf("%s, customer %s, %s of %s %s given back before", p.Payment.Status, clean(p.Payment.Customer),
				majorText(p.Payment.AmountRefundedMinor, p.Payment.Currency), majorText(p.Payment.Amount, p.Payment.Currency), p.Payment.Currency)},
			[2]string{"   stays", p.Stays},
			[2]string{"   request", "POST /v1/refunds " + p.Body},
			[2]string{"   key", p.Key},
		))
	}
	b.WriteString("nothing was sent")
	if !s.c.Bool("dry-run") {
		b.WriteString("; the same command with --yes makes it")
	}
	return b.String() + "\n"
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
