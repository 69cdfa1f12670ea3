package billing

import (
	"testing"
	"time"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// How long a charge rests goes by what asking again could tell: soon where the
// trouble may have passed, an hour where Stripe would say or do the same again.
func TestHowLongAChargeRests(t *testing.T) {
	t.Parallel()
	unknown := func(status int, change func(*gateway.Answer)) gateway.Answer {
		a := gateway.Answer{Verdict: gateway.VerdictUnknown, HTTPStatus: status}
		if change != nil {
			change(&a)
		}
		return a
	}
	intent := func(a *gateway.Answer) { a.PaymentIntent = "pi_1" }
	replayed := func(a *gateway.Answer) { a.Replayed = true }
	for name, test := range map[string]struct {
		answer gateway.Answer
		sends  int
		want   time.Duration
	}{
		"paid":                           {gateway.Answer{Verdict: gateway.VerdictKnown, HTTPStatus: 200}, 1, 0},
		"not sent":                       {gateway.Answer{Verdict: gateway.VerdictNotSent, NotSent: true}, 1, 0},
		"no answer":                      {unknown(0, nil), 1, time.Second},
		"no answer, the sixth time":      {unknown(0, nil), 6, 32 * time.Second},
		"no answer, the twentieth time":  {unknown(0, nil), 20, 32 * time.Second},
		"429":                            {unknown(429, nil), 6, 2 * time.Second},
		"500":                            {unknown(500, nil), 1, time.Second},
		"500, replayed":                  {unknown(500, replayed), 1, time.Hour},
		"400":                            {unknown(400, nil), 1, time.Second},
		"400 with a PaymentIntent":       {unknown(400, intent), 1, time.Hour},
		"404 with a PaymentIntent":       {unknown(404, intent), 1, time.Hour},
		"402 that was not read again":    {unknown(402, intent), 1, time.Second},
		"200 that is not as asked":       {unknown(200, intent), 1, time.Second},
		"refused beside an earlier send": {gateway.Answer{Verdict: gateway.VerdictRefused, HTTPStatus: 400}, 2, time.Hour},
		"the key was used otherwise":     {unknown(400, func(a *gateway.Answer) { a.Reason = gateway.ReasonIdempotency }), 1, time.Hour},
		"not what was claimed":           {gateway.Answer{Verdict: gateway.VerdictNotSent, NotSent: true, Reason: gateway.ReasonNotPermitted}, 1, time.Hour},
	} {
		got := waitAfter(ledger.Permit{RunSends: test.sends}, test.answer)
		if got < test.want-test.want/4 || got > test.want+test.want/4 {
			t.Errorf("%s: rests for %s, want %s", name, got, test.want)
		}
	}
}
