package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const testKey = "monthly-billing/2026-10/a"

// looked is when every look of these tests began; times are told from it.
var looked = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	t := looked.Add(-d)
	return &t
}

// lost is a charge past its window: sent once, 25 hours ago, without an answer.
func lost(change ...func(*ledger.OpenCharge)) ledger.OpenCharge {
	c := ledger.OpenCharge{
		AccountID: "a", BillingKey: testKey, State: ledger.ChargePending, Try: 1, Amount: "49.00", Currency: "usd", AmountMinor: 4900,
		StripeCustomer: "cus_1", WindowOpenedAt: ago(26 * time.Hour), Sends: 1, OpenSends: 1, LastSentAt: ago(25 * time.Hour),
	}
	for _, do := range change {
		do(&c)
	}
	return c
}

func inState(s ledger.ChargeState, paymentIntent string) func(*ledger.OpenCharge) {
	return func(c *ledger.OpenCharge) { c.State, c.PaymentIntent = s, paymentIntent }
}

func inTry(n int) func(*ledger.OpenCharge) { return func(c *ledger.OpenCharge) { c.Try = n } }

func sentAgo(d time.Duration) func(*ledger.OpenCharge) {
	return func(c *ledger.OpenCharge) { c.LastSentAt = ago(d) }
}

func openedAgo(d time.Duration) func(*ledger.OpenCharge) {
	return func(c *ledger.OpenCharge) { c.WindowOpenedAt = ago(d) }
}

func noOpenSend(c *ledger.OpenCharge) { c.OpenSends = 0 }

// neverAsked is a skipped charge: nothing was ever to be sent.
func neverAsked(c *ledger.OpenCharge) {
	c.State, c.Reason = ledger.ChargeSkipped, "paused"
	c.WindowOpenedAt, c.LastSentAt, c.Sends, c.OpenSends, c.AmountMinor, c.StripeCustomer = nil, nil, 0, 0, 0, ""
}

// intent is a PaymentIntent as lost asked for it, made 25 hours ago.
func intent(id, status string, change ...func(*gateway.PaymentIntent)) gateway.PaymentIntent {
	pi := gateway.PaymentIntent{
		ID: "pi_" + id, Status: status, Amount: 4900, Currency: "usd", Customer: "cus_1", Created: *ago(25 * time.Hour),
		BillingKey: testKey, Job: "monthly-billing", Period: "2026-10", Account: "a", Try: 1,
	}
	for _, do := range change {
		do(&pi)
	}
	return pi
}

func paid(id string, change ...func(*gateway.PaymentIntent)) gateway.PaymentIntent {
	return intent(id, gateway.StatusSucceeded, change...)
}

// refused is what a declined card leaves.
func refused(id string, change ...func(*gateway.PaymentIntent)) gateway.PaymentIntent {
	return intent(id, gateway.StatusRequiresPaymentMethod, append([]func(*gateway.PaymentIntent){func(pi *gateway.PaymentIntent) {
		pi.ErrorCode, pi.DeclineCode, pi.LatestCharge = "card_declined", "insufficient_funds", "ch_1"
	}}, change...)...)
}

func ofTry(n int) func(*gateway.PaymentIntent) { return func(pi *gateway.PaymentIntent) { pi.Try = n } }

func madeAgo(d time.Duration) func(*gateway.PaymentIntent) {
	return func(pi *gateway.PaymentIntent) { pi.Created = *ago(d) }
}

func set(intents ...gateway.PaymentIntent) evidence { return evidence{intents: intents} }

// come is what a verdict came to, in short.
type come struct {
	outcome Outcome
	// to and reason are where it moves the charge, by is the PaymentIntent.
	to     ledger.ChargeState
	reason string
	by     string
	// findings are their kinds and PaymentIntents.
	findings []string
	// waits is how long after the look it may be decided.
	waits time.Duration
}

func came(v verdict) come {
	out := come{outcome: v.outcome, by: v.paymentIntent}
	switch {
	case v.found != nil:
		out.to, out.reason, out.by = v.found.State, v.found.Reason, v.found.PaymentIntent
	case v.absent != nil:
		out.to, out.reason = v.absent.To, v.absent.Reason
	case v.requeue:
		out.to = ledger.ChargePending
	}
	for _, f := range v.findings {
		out.findings = append(out.findings, f.Kind+" "+f.PaymentIntent)
	}
	if v.until != nil {
		out.waits = v.until.Sub(looked)
	}
	return out
}

type judged struct {
	name   string
	charge ledger.OpenCharge
	seen   evidence
	want   come
}

// newJudge is that of a run; others change it.
func newJudge(change ...func(*judge)) judge {
	j := judge{job: "monthly-billing", period: "2026-10", policy: PolicyCharge, absentAfter: ledger.DefaultAbsentAfter}
	for _, do := range change {
		do(&j)
	}
	return j
}

func holding(j *judge)   { j.policy = PolicyHold }
func releasing(j *judge) { j.act = ActRelease }
func requeuing(j *judge) { j.act = ActRequeue }

func check(t *testing.T, j judge, cases []judged) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			test.seen.lookedAt = looked
			v := j.decide(test.charge, test.seen)
			if diff := cmp.Diff(test.want, came(v), cmp.AllowUnexported(come{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if v.outcome == "" || v.seen == "" || v.done == "" {
				t.Errorf("a person is told %q, %q, %q", v.outcome, v.seen, v.done)
			}
		})
	}
}

const (
	succeeded = ledger.ChargeSucceeded
	declined  = ledger.ChargeDeclined
	review    = ledger.ChargeReview
	pending   = ledger.ChargePending
	held      = ledger.ChargeHeld
	action    = ledger.ChargeActionRequired
)

// What was paid settles the charge, whatever else there is and whatever state it
// is in; the earliest counts, and every further one is a finding.
func TestWhatWasPaidWins(t *testing.T) {
	earlier, later := paid("b", madeAgo(25*time.Hour)), paid("a", madeAgo(24*time.Hour))
	other := func(do func(*gateway.PaymentIntent)) gateway.PaymentIntent { return paid("odd", do) }
	check(t, newJudge(), []judged{
		{"one", lost(), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"inside its window", lost(openedAgo(time.Hour), sentAgo(time.Minute)), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"while somebody may send it", lost(func(c *ledger.OpenCharge) { c.Leased = true }), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"two: the earlier counts", lost(), set(later, earlier), come{OutcomeSucceeded, succeeded, "", "pi_b", []string{"duplicate pi_a"}, 0}},
		{"beside one under way", lost(), set(intent("0", gateway.StatusProcessing, madeAgo(26*time.Hour)), paid("1")),
			come{OutcomeSucceeded, succeeded, "", "pi_1", []string{"duplicate pi_0"}, 0}},
		{"beside a refused one", lost(), set(refused("0"), paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"of an earlier try", lost(inTry(2)), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"of a try that the ledger does not know", lost(), set(paid("1", ofTry(3))), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"a declined one", lost(inState(declined, "pi_0")), set(refused("0"), paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"a held one", lost(inState(held, "")), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"one in review", lost(inState(review, "")), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"a rejected one", lost(inState(ledger.ChargeRejected, "")), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"a void one", lost(inState(ledger.ChargeVoid, "")), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"one that was never asked for", lost(neverAsked), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"its own, though its metadata was edited", lost(inState(ledger.ChargeProcessing, "pi_1")),
			set(paid("1", func(pi *gateway.PaymentIntent) { pi.BillingKey, pi.Try = "", 0 })), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"paid before, as before", lost(inState(succeeded, "pi_1")), set(paid("1")), come{OutcomeUnchanged, "", "", "pi_1", nil, 0}},
		{"paid before, and again", lost(inState(succeeded, "pi_1")), set(paid("2", madeAgo(26*time.Hour)), paid("1")),
			come{OutcomeUnchanged, "", "", "pi_1", []string{"duplicate pi_2"}, 0}},
		{"another amount", lost(), set(other(func(pi *gateway.PaymentIntent) { pi.Amount = 4901 })),
			come{OutcomeReview, review, "not_as_asked", "pi_odd", []string{"not_as_asked pi_odd"}, 0}},
		{"another currency", lost(), set(other(func(pi *gateway.PaymentIntent) { pi.Currency = "eur" })),
			come{OutcomeReview, review, "not_as_asked", "pi_odd", []string{"not_as_asked pi_odd"}, 0}},
		{"another customer", lost(), set(other(func(pi *gateway.PaymentIntent) { pi.Customer = "cus_2" })),
			come{OutcomeReview, review, "not_as_asked", "pi_odd", []string{"not_as_asked pi_odd"}, 0}},
		{"the other mode", lost(), set(other(func(pi *gateway.PaymentIntent) { pi.Livemode = true })),
			come{OutcomeReview, review, "not_as_asked", "pi_odd", []string{"not_as_asked pi_odd"}, 0}},
		{"one as asked beside one that is not", lost(), set(other(func(pi *gateway.PaymentIntent) { pi.Amount = 1 }), paid("1")),
			come{OutcomeSucceeded, succeeded, "", "pi_1", []string{"not_as_asked pi_odd"}, 0}},
		{"another key, upper case", lost(noOpenSend), set(paid("1", func(pi *gateway.PaymentIntent) { pi.BillingKey = "monthly-billing/2026-10/A" })),
			come{OutcomeRenewed, pending, "", "", nil, 0}},
	})
}

// A closed try may have been asked of another customer.
func TestAPaymentOfAClosedTryIsComparedWithThatTry(t *testing.T) {
	tries := []ledger.TrySeen{{AccountID: "a", Try: 1, StripeCustomer: "cus_old"}}
	old := paid("1", func(pi *gateway.PaymentIntent) { pi.Customer = "cus_old" })
	wrong := paid("1", ofTry(2), func(pi *gateway.PaymentIntent) { pi.Customer = "cus_old" })
	check(t, newJudge(), []judged{
		{"its own customer", lost(inTry(2)), evidence{intents: []gateway.PaymentIntent{old}, tries: tries}, come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"the customer of another try", lost(inTry(2)), evidence{intents: []gateway.PaymentIntent{wrong}, tries: tries},
			come{OutcomeReview, review, "not_as_asked", "pi_1", []string{"not_as_asked pi_1"}, 0}},
	})
}

// What may still be paid is followed, and is never a reason to send again.
func TestWhatIsUnderWayIsFollowed(t *testing.T) {
	check(t, newJudge(), []judged{
		{"processing", lost(), set(intent("1", gateway.StatusProcessing)), come{OutcomeProcessing, ledger.ChargeProcessing, "", "pi_1", nil, 0}},
		{"awaiting capture", lost(), set(intent("1", gateway.StatusRequiresCapture)), come{OutcomeProcessing, ledger.ChargeProcessing, "awaiting_capture", "pi_1", nil, 0}},
		{"3-D Secure", lost(), set(intent("1", gateway.StatusRequiresAction)), come{OutcomeActionRequired, action, "requires_action", "pi_1", nil, 0}},
		{"two", lost(), set(intent("2", gateway.StatusProcessing), intent("1", gateway.StatusRequiresAction)),
			come{OutcomeActionRequired, action, "requires_action", "pi_1", []string{"duplicate pi_2"}, 0}},
		{"beside a refused one", lost(), set(refused("0"), intent("1", gateway.StatusProcessing)), come{OutcomeProcessing, ledger.ChargeProcessing, "", "pi_1", nil, 0}},
		{"processing as before", lost(inState(ledger.ChargeProcessing, "pi_1")), set(intent("1", gateway.StatusProcessing)), come{OutcomeUnchanged, "", "", "pi_1", nil, 0}},
		{"a bank debit that fails days later", lost(inState(ledger.ChargeProcessing, "pi_1")), set(refused("1")), come{OutcomeDeclined, declined, "insufficient_funds", "pi_1", nil, 0}},
		{"the customer completed it", lost(inState(action, "pi_1")), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"the customer let it lapse", lost(inState(action, "pi_1")), set(intent("1", gateway.StatusCanceled)), come{OutcomeDeclined, declined, "canceled", "pi_1", nil, 0}},
		{"nothing is shown", lost(inState(ledger.ChargeProcessing, "pi_1")), set(), come{OutcomeUnchanged, "", "", "", nil, 0}},
		{"of another amount", lost(), set(intent("1", gateway.StatusProcessing, func(pi *gateway.PaymentIntent) { pi.Amount = 1 })),
			come{OutcomeReview, review, "not_as_asked", "pi_1", []string{"not_as_asked pi_1"}, 0}},
	})
}

// A PaymentIntent that is unpaid proves a decline only when nothing of its try can
// be on its way.
func TestUnpaidProvesADeclineOnlyWhenTheLastSendIsDead(t *testing.T) {
	dead := ledger.RequestDead
	young, leased := lost(sentAgo(dead-time.Second)), lost(func(c *ledger.OpenCharge) { c.Leased = true })
	check(t, newJudge(), []judged{
		{"dead", lost(), set(refused("1")), come{OutcomeDeclined, declined, "insufficient_funds", "pi_1", nil, 0}},
		{"dead to the second", lost(sentAgo(dead), openedAgo(time.Hour)), set(refused("1", madeAgo(dead))), come{OutcomeDeclined, declined, "insufficient_funds", "pi_1", nil, 0}},
		{"a send under way", young, set(refused("1")), come{OutcomeWaiting, "", "", "pi_1", nil, dead}},
		{"leased", leased, set(refused("1")), come{OutcomeWaiting, "", "", "pi_1", nil, dead}},
		{"just created", lost(), set(refused("1", madeAgo(time.Minute))), come{OutcomeWaiting, "", "", "pi_1", nil, dead}},
		{"authentication", lost(), set(refused("1", func(pi *gateway.PaymentIntent) { pi.DeclineCode = "authentication_required" })),
			come{OutcomeActionRequired, action, "authentication_required", "pi_1", nil, 0}},
		{"cancelled", lost(), set(intent("1", gateway.StatusCanceled)), come{OutcomeDeclined, declined, "canceled", "pi_1", nil, 0}},
		{"the last of two counts", lost(), set(refused("1"), intent("2", gateway.StatusCanceled)), come{OutcomeDeclined, declined, "canceled", "pi_2", nil, 0}},
		{"declined as before", lost(inState(declined, "pi_1")), set(refused("1")), come{OutcomeUnchanged, "", "", "pi_1", nil, 0}},
		{"nobody tried", lost(), set(intent("1", gateway.StatusRequiresConfirmation)), come{OutcomeHeld, held, "not_attempted", "pi_1", nil, 0}},
		{"nobody tried, inside the window", lost(openedAgo(2*time.Hour), sentAgo(time.Hour)), set(intent("1", gateway.StatusRequiresConfirmation)),
			come{OutcomeInWindow, "", "", "pi_1", nil, 0}},
		{"a status that nobody knows", lost(), set(intent("1", "requires_blessing")), come{OutcomeHeld, held, "not_attempted", "pi_1", nil, 0}},
		{"of an unknown try", lost(), set(refused("1", ofTry(2))), come{OutcomeReview, review, "unknown_try", "pi_1", []string{"unknown_try pi_1"}, 0}},
		{"without a try", lost(), set(refused("1", ofTry(0))), come{OutcomeReview, review, "unknown_try", "pi_1", []string{"unknown_try pi_1"}, 0}},
		{"of an earlier try says nothing of this one", lost(inTry(2), noOpenSend), set(refused("1")), come{OutcomeRenewed, pending, "", "", nil, 0}},
		{"for a charge that was never asked for", lost(neverAsked), set(refused("1")), come{OutcomeUnchanged, "", "", "pi_1", []string{"unknown_try pi_1"}, 0}},
		{"of a rejected one", lost(inState(ledger.ChargeRejected, "")), set(refused("1")), come{OutcomeUnchanged, "", "", "pi_1", nil, 0}},
	})
}

// What a complete look did not find is renewed only where nothing can come of what
// was sent; else it waits, or a person decides.
func TestAbsenceIsBelievedOnlyWithProof(t *testing.T) {
	waits := func(left time.Duration) come { return come{OutcomeWaiting, "", "", "", nil, left} }
	heldFor := func(reason string) come { return come{OutcomeHeld, held, reason, "", nil, 0} }
	renewed, inWindow := come{OutcomeRenewed, pending, "", "", nil, 0}, come{OutcomeInWindow, "", "", "", nil, 0}
	inWindow.waits = ledger.RequestDead - time.Second
	hour, dead := time.Hour, ledger.Window+ledger.RequestDead
	check(t, newJudge(), []judged{
		{"no open send", lost(noOpenSend), set(), renewed},
		{"no open send, the window just dead", lost(noOpenSend, openedAgo(dead)), set(), renewed},
		{"the window over and not dead", lost(noOpenSend, openedAgo(ledger.Window+time.Second)), set(), inWindow},
		{"an open send", lost(), set(), waits(47 * hour)},
		{"an open send a second too young", lost(openedAgo(80*hour), sentAgo(72*hour-time.Second)), set(), waits(time.Second)},
		{"an open send 72 hours ago", lost(openedAgo(80*hour), sentAgo(72*hour)), set(), renewed},
		{"leased", lost(noOpenSend, func(c *ledger.OpenCharge) { c.Leased = true }), set(), come{OutcomeInWindow, "", "", "", nil, 0}},
		{"a 5xx of Stripe's own", lost(func(c *ledger.OpenCharge) { c.ServerErrors = 1 }, openedAgo(999*hour), sentAgo(999*hour)), set(), heldFor("server_error")},
		{"renewed before", lost(noOpenSend, func(c *ledger.OpenCharge) { c.Renewals = 1 }), set(), heldFor("absent_again")},
		{"the customer is gone", lost(noOpenSend), evidence{customerGone: true}, heldFor("customer_gone")},
		{"a payment without a key", lost(noOpenSend), evidence{unexplained: "pi_9"}, come{OutcomeHeld, held, "unexplained_payment", "pi_9", nil, 0}},
		{"the key was used with another request", lost(func(c *ledger.OpenCharge) { c.Reason = gateway.ReasonIdempotency }), set(),
			come{OutcomeReview, review, gateway.ReasonIdempotency, "", []string{"idempotency_error "}, 0}},
		{"held as before", lost(inState(held, "")), set(), come{OutcomeUnchanged, "", "", "", nil, 0}},
	})
	check(t, newJudge(holding), []judged{
		{"the command holds", lost(noOpenSend), set(), heldFor("absent")},
		{"the command holds what is open too", lost(), set(), heldFor("absent")},
		{"the command leaves what is in its window", lost(noOpenSend, openedAgo(ledger.Window+time.Second)), set(), inWindow},
	})
	check(t, newJudge(func(j *judge) { j.absentAfter = 24 * hour }), []judged{
		{"after --absent-after", lost(), set(), renewed},
		{"before --absent-after", lost(sentAgo(23 * hour)), set(), waits(hour)},
	})
}

// Only what is pending or held can be renewed or held: nobody is charged because a
// list shows an old try of what was declined, rejected or withdrawn since.
func TestWhatIsDecidedIsNotRenewed(t *testing.T) {
	for _, s := range []ledger.ChargeState{declined, ledger.ChargeRejected, ledger.ChargeVoid, review, succeeded} {
		c := lost(inState(s, ""), inTry(2), noOpenSend)
		for _, j := range []judge{newJudge(), newJudge(holding), newJudge(releasing)} {
			check(t, j, []judged{{string(s), c, set(intent("1", gateway.StatusCanceled)), come{OutcomeUnchanged, "", "", "", nil, 0}}})
		}
	}
}

// A person may let a held charge go, and no more than that: what is paid or may be
// is found all the same.
func TestReleaseRenewsWhatIsAbsent(t *testing.T) {
	h := lost(inState(held, ""))
	check(t, newJudge(releasing), []judged{
		{"an open send, a 5xx, renewed before", lost(inState(held, ""), func(c *ledger.OpenCharge) { c.ServerErrors, c.Renewals = 1, 1 }), set(),
			come{OutcomeRenewed, pending, "", "", nil, 0}},
		{"nobody tried", h, set(intent("1", gateway.StatusRequiresConfirmation)), come{OutcomeRenewed, pending, "", "pi_1", nil, 0}},
		{"paid", h, set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"waits for the customer", h, set(intent("1", gateway.StatusRequiresAction)), come{OutcomeActionRequired, action, "requires_action", "pi_1", nil, 0}},
		{"declined", h, set(refused("1")), come{OutcomeDeclined, declined, "insufficient_funds", "pi_1", nil, 0}},
		{"the customer is gone", h, evidence{customerGone: true}, come{OutcomeRefused, "", "", "", nil, 0}},
		{"a payment without a key", h, evidence{unexplained: "pi_9"}, come{OutcomeRefused, "", "", "pi_9", nil, 0}},
	})
}

// A new try is opened only when nothing of the earlier ones can take money.
func TestRequeueOpensATryOnlyWhenNothingIsOpen(t *testing.T) {
	rejected := inState(ledger.ChargeRejected, "")
	opened := come{OutcomeRequeued, pending, "", "", nil, 0}
	check(t, newJudge(requeuing), []judged{
		{"nothing", lost(rejected, noOpenSend), set(), opened},
		{"never asked for", lost(neverAsked), set(), opened},
		{"a cancelled one", lost(rejected, noOpenSend), set(intent("1", gateway.StatusCanceled)), opened},
		{"one that can be paid", lost(rejected, noOpenSend), set(refused("1")), come{OutcomeRefused, "", "", "pi_1", nil, 0}},
		{"one of an earlier try that can be paid", lost(rejected, noOpenSend, inTry(2)), set(refused("1")), come{OutcomeRefused, "", "", "pi_1", nil, 0}},
		{"one of an unknown try", lost(rejected, noOpenSend), set(refused("1", ofTry(2))), come{OutcomeRefused, "", "", "pi_1", []string{"unknown_try pi_1"}, 0}},
		{"paid", lost(rejected, noOpenSend), set(paid("1")), come{OutcomeSucceeded, succeeded, "", "pi_1", nil, 0}},
		{"under way", lost(rejected, noOpenSend), set(intent("1", gateway.StatusProcessing)), come{OutcomeProcessing, ledger.ChargeProcessing, "", "pi_1", nil, 0}},
		{"a payment without a key", lost(rejected, noOpenSend), evidence{unexplained: "pi_9"}, come{OutcomeRefused, "", "", "pi_9", nil, 0}},
		{"a send under way", lost(rejected, noOpenSend, sentAgo(time.Minute)), set(), come{OutcomeWaiting, "", "", "", nil, ledger.RequestDead}},
		{"an open send whose window is over", lost(rejected), set(), come{OutcomeWaiting, "", "", "", nil, 72*time.Hour - 25*time.Hour}},
		{"an open send of three days ago", lost(rejected, openedAgo(80*time.Hour), sentAgo(73*time.Hour)), set(), opened},
		{"an open send inside the window", lost(rejected, openedAgo(3*time.Hour), sentAgo(2*time.Hour)), set(), come{OutcomeWaiting, "", "", "", nil, ledger.RequestDead}},
	})
}

// A debt is paid by the payment that stands, not by an earlier one that was given back
// whole, which is no second payment either; if nothing stands it stays as it was said.
func TestADebtIsPaidByWhatStands(t *testing.T) {
	t.Parallel()
	givenBack := func(pi *gateway.PaymentIntent) { pi.AmountRefundedMinor = pi.Amount }
	for name, c := range map[string]struct {
		e        evidence
		by       string
		findings int
	}{
		"the first was given back":    {set(paid("1", givenBack), paid("2")), "pi_2", 0},
		"a part was given back":       {set(paid("1", func(pi *gateway.PaymentIntent) { pi.AmountRefundedMinor = 1 }), paid("2")), "pi_1", 1},
		"both were given back":        {set(paid("1", givenBack), paid("2", givenBack)), "pi_1", 0},
		"the only one was given back": {set(paid("1", givenBack)), "pi_1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newJudge().decide(lost(), c.e)
			if v.outcome != OutcomeSucceeded || v.paymentIntent != c.by || len(v.findings) != c.findings {
				t.Errorf("%s by %s with %d findings", v.outcome, v.paymentIntent, len(v.findings))
			}
		})
	}
}
