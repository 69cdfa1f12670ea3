package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// unanswered imports customers and charges them under some faults.
func (o *office) unanswered(list []customer, faults ...stripeemu.Fault) {
	o.t.Helper()
	o.imports(october, list)
	o.chargesUnder(faults...)
}

// chargesUnder runs October under some faults of its POSTs, until every charge was
// answered or known to have no answer; then the run is interrupted, and Stripe is
// well again.
func (o *office) chargesUnder(faults ...stripeemu.Fault) {
	o.t.Helper()
	for _, f := range faults {
		f.Method = "POST"
		o.emu.Inject(f)
	}
	p := o.start("run", "--period", october)
	eventually(o.t, "every charge was sent once", func() bool {
		return one[bool](o, `SELECT coalesce(bool_and(state <> 'pending' OR reason <> ''), false) FROM billing.charges WHERE period = $1`, october)
	})
	p.signal(syscall.SIGTERM)
	if r := p.wait(); r.code != 128+int(syscall.SIGTERM) {
		o.t.Fatalf("the run was not interrupted\n%s", r)
	}
	o.emu.ClearFaults()
	o.emu.ResetLog()
}

// lostAnswers loses the answers to accounts that end in -here, after the work, and
// to those that end in -gone, before it.
var lostAnswers = []stripeemu.Fault{
	{Name: stripeemu.FaultLoseAnswer, Account: "*-here"},
	{Name: stripeemu.FaultLoseRequest, Account: "*-gone"},
}

// withFate are n ordinary customers, the first of whom have ids that end in what
// is to become of them, spread so that Stripe does not look down.
func withFate(n int, fates ...string) []customer {
	list := customers(n)
	for i, fate := range fates {
		list[i*n/len(fates)].id += "-" + fate
	}
	return list
}

// fates are n times here and m times gone.
func fates(here, gone int) []string {
	return append(slices.Repeat([]string{"here"}, here), slices.Repeat([]string{"gone"}, gone)...)
}

// september bills the same customers a month before and comes back, so that Stripe
// and the ledger know an older payment of each.
func (o *office) september(list []customer) {
	o.t.Helper()
	o.ungated()
	o.setNow(time.Date(2026, 10, 1, 0, 5, 0, 0, time.UTC))
	o.imports("2026-09", list)
	o.must(0, "run", "--period", "2026-09")
	o.setNow(time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC))
}

// flood puts n PaymentIntents of somebody else there, younger than all others, in
// one's own Stripe account or in a connected one.
func (o *office) flood(n int, customer string, stripeAccount ...string) {
	o.t.Helper()
	for i := range n {
		o.emu.AddIntent(stripeemu.PaymentIntent{
			Customer: customer, Account: strings.Join(stripeAccount, ""), Amount: 777, Status: "canceled", Created: o.emu.Now().Add(-time.Duration(i) * time.Second),
			Metadata: map[string]string{"order": strconv.Itoa(i)},
		})
	}
}

func keyOf(account string) string { return ledger.BillingKey("monthly-billing", october, account) }

// accountsLike are the ids of a period's charges that end in a suffix.
func (o *office) accountsLike(suffix string) []string {
	o.t.Helper()
	return one[[]string](o, `SELECT coalesce(array_agg(account_id ORDER BY account_id), '{}') FROM billing.charges
		WHERE period = $1 AND account_id LIKE '%' || $2`, october, suffix)
}

// onePaymentEach wants exactly one payment under every key of October, of the
// amount and customer that the ledger asked for.
func (o *office) onePaymentEach() {
	o.t.Helper()
	for _, account := range o.accountsLike("") {
		live := slices.DeleteFunc(o.emu.IntentsFor(keyOf(account)), func(pi stripeemu.PaymentIntent) bool { return !pi.Live() })
		if len(live) != 1 {
			o.t.Errorf("%s was paid %d times", account, len(live))
			continue
		}
		if id := one[string](o, `SELECT payment_intent FROM billing.charges WHERE period = $1 AND account_id = $2 AND amount_minor = $3 AND stripe_customer = $4`,
			october, account, live[0].Amount, live[0].Customer); id != live[0].ID {
			o.t.Errorf("%s has %s in the ledger and %s at Stripe", account, id, live[0].ID)
		}
	}
}

// lookCalls are the calls of a look: those by which it found out whose key it has are
// left out.
func (o *office) lookCalls() int {
	return o.emu.Count("GET *") - o.emu.Count(stripeemu.OpReadAccount)
}

// behind puts a proxy before Stripe that may change what it answers.
func (o *office) behind(change func(*http.Response) error) {
	o.t.Helper()
	to, err := url.Parse(o.env["STRIPE_API_BASE"])
	if err != nil {
		o.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = change
	server := httptest.NewServer(proxy)
	o.t.Cleanup(server.Close)
	o.env["STRIPE_API_BASE"] = server.URL
}

// inIndia is a Stripe account of India's, where search is missing.
func (o *office) inIndia() {
	o.behind(func(r *http.Response) error {
		if r.Request.URL.Path != "/v1/account" {
			return nil
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		body = bytes.Replace(body, []byte(`"country":"US"`), []byte(`"country":"IN"`), 1)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	})
}

// outages are the states that Stripe can be in when a run comes a day later. All
// but the first hold so many foreign payments that the span is not read.
var outages = []struct {
	name   string
	spoil  func(o *office)
	search bool // whether search is asked at all
}{
	{"all is well", func(*office) {}, false},
	{"search works", func(o *office) { o.flood(1300, "cus_shop") }, true},
	{"search is down", func(o *office) { o.flood(1300, "cus_shop"); o.emu.SetSearchOutage(true) }, true},
	{"search lags behind", func(o *office) { o.flood(1300, "cus_shop"); o.emu.SetSearchLag(27 * time.Hour) }, true},
	{"search is unavailable", func(o *office) {
		o.flood(1300, "cus_shop")
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
	}, true},
	{"the key may not search", func(o *office) {
		o.flood(1300, "cus_shop")
		o.emu.AddRestrictedKey("rk_test_nosearch", stripeemu.OpCreate, stripeemu.OpList, stripeemu.OpRead, stripeemu.OpReadAccount)
		o.env["STRIPE_SECRET_KEY"] = "rk_test_nosearch"
	}, true},
	{"the account is in India", func(o *office) { o.flood(1300, "cus_shop"); o.inIndia() }, false},
	{"search shows what was not asked for", func(o *office) {
		o.flood(1300, "cus_shop")
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchForeign})
	}, true},
	{"search shows an earlier status", func(o *office) {
		o.flood(1300, "cus_shop")
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultStale, Operation: stripeemu.OpSearch, Status: "requires_payment_method"})
	}, true},
	{"search shows keys in capital letters", func(o *office) {
		o.flood(1300, "cus_shop")
		o.shouted()
	}, true},
	{"customers have 350 payments each", func(o *office) {
		for i := range 6 {
			o.flood(350, fmt.Sprintf("cus_%04d", 1+i))
		}
	}, true},
}

// shouted pays, for each charge that does not exist, another key that differs only
// by its case: search takes it for the same.
func (o *office) shouted() {
	for _, account := range o.accountsLike("-lost") {
		if len(o.emu.IntentsFor(keyOf(account))) > 0 {
			continue
		}
		o.emu.AddIntent(stripeemu.PaymentIntent{
			Customer: one[string](o, `SELECT stripe_customer FROM billing.charges WHERE account_id = $1`, account),
			Amount:   one[int64](o, `SELECT amount_minor FROM billing.charges WHERE account_id = $1`, account),
			Metadata: map[string]string{"billing_key": strings.ToUpper(keyOf(account)), "billing_job": "monthly-billing", "billing_period": october, "billing_try": "1"},
		})
	}
}

// Answers that were lost and charges that Stripe turned away, 26 hours later, in
// every state that search and lists can be in: what exists is settled, what
// certainly does not is charged, and the rest waits until 72 hours are over.
func TestARunFindsWhatExistsWhateverSearchSays(t *testing.T) {
	t.Parallel()
	for _, tt := range outages {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const n = 20 // of each kind
			o := newOffice(t)
			o.unanswered(threeKinds(n),
				stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a???5-lost"},
				stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Account: "*-lost"},
				stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Account: "*-busy"})
			o.advance(26 * time.Hour)
			tt.spoil(o)
			r := o.month(75)
			if got := o.states(october); got["succeeded"] != 3*n-2 || got["pending"] != 2 {
				t.Fatalf("after a day: %v\n%s", got, r)
			}
			if posts := o.emu.Posts(); posts != n {
				t.Errorf("%d POSTs for %d charges that certainly do not exist", posts, n)
			}
			if asked := o.emu.Count(stripeemu.OpSearch) > 0; asked != tt.search {
				t.Errorf("search was asked: %t, want %t\n%s", asked, tt.search, r)
			}
			o.advance(45 * time.Hour)
			if o.month(75); o.emu.Posts() != n {
				t.Errorf("%d POSTs before the 72 hours were over", o.emu.Posts()-n)
			}
			o.advance(2 * time.Hour)
			o.month(0)
			o.onePaymentEach()
		})
	}
}

// Among many known charges, those that are not known are searched for, ten at a
// time, and only what search does not show is listed. A customer whose older
// payment the list shows needs no further question.
func TestScatteredUnknownsCostFewCalls(t *testing.T) {
	t.Parallel()
	const here, gone = 12, 4
	o := newOffice(t)
	list := withFate(450, fates(here, gone)...)
	o.september(list)
	o.unanswered(list, lostAnswers...)
	o.advance(26 * time.Hour)
	r := o.must(75, "reconcile", "--period", october, "--on-absent", "charge", "-v")
	if got := o.states(october); got["pending"] != gone || got["succeeded"] != len(list)-gone {
		t.Fatalf("%v\n%s", got, r)
	}
	if bound := float64(here)*0.2 + float64(gone)*1.2; float64(o.lookCalls()) > bound {
		t.Errorf("%d calls for %d that exist and %d that do not, want at most %.1f", o.lookCalls(), here, gone, bound)
	}
	want := fmt.Sprintf("(%d calls to Stripe: %d searches, %d pages, 0 single)", o.lookCalls(), o.emu.Count(stripeemu.OpSearch), o.emu.Count(stripeemu.OpList))
	if !strings.Contains(r.stdout, want) || !strings.Contains(r.stderr, "search, then list by customer") || !strings.Contains(r.stderr, "calls_all") {
		t.Errorf("it does not say %q, and how it looked\n%s", want, r)
	}
}

// Where most are not known, everybody's payments are read once.
func TestManyUnknownsAreFoundByReadingTheSpanOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.unanswered(withFate(300, fates(90, 10)...), lostAnswers...)
	o.advance(26 * time.Hour)
	r := o.must(75, "reconcile", "--period", october, "--on-absent", "charge", "-v")
	if got := o.states(october); got["pending"] != 10 || got["succeeded"] != 290 {
		t.Fatalf("%v\n%s", got, r)
	}
	if got, most := o.lookCalls(), 290/100+10; got > most {
		t.Errorf("%d calls, want at most %d", got, most)
	}
	if !strings.Contains(r.stderr, "read every payment since the horizon once") || !strings.Contains(r.stdout, "0 searches, 3 pages, 0 single") {
		t.Errorf("it does not say how it looked\n%s", r)
	}
}

// A span that turns out to hold far more than this ledger's payments is given up,
// and the charges are looked up one by one.
func TestASpanFullOfOthersPaymentsIsGivenUp(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.unanswered(withFate(60, fates(16, 4)...), lostAnswers...)
	o.advance(26 * time.Hour)
	o.flood(3000, "cus_shop")
	r := o.must(75, "reconcile", "--period", october, "--on-absent", "charge", "-v")
	if got := o.states(october); got["pending"] != 4 || got["succeeded"] != 56 {
		t.Fatalf("%v\n%s", got, r)
	}
	if got := o.emu.Count(stripeemu.OpList); got > 20 {
		t.Errorf("%d pages were read: the span has 31", got)
	}
	if !strings.Contains(r.stderr, "looking one by one") {
		t.Errorf("it does not say so\n%s", r)
	}
}

// T45: search answers nothing at times, and something else at times; what is
// concluded is the same each time.
func TestSearchThatVariesChangesNoVerdict(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.unanswered(withFate(60, fates(12, 3)...), lostAnswers...)
	o.advance(26 * time.Hour)
	o.flood(1300, "cus_shop")
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchEmpty, Every: 3})
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchForeign, Every: 2})
	before := o.ledgerText()
	first := ""
	for range 5 {
		r := o.run("reconcile", "--period", october, "--on-absent", "charge", "--dry-run", "--format", "csv")
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		slices.Sort(lines)
		if text := strings.Join(lines, "\n"); first == "" {
			first = text
		} else if text != first {
			t.Fatalf("another verdict than before:\n%s\n---\n%s", first, text)
		}
	}
	if n := strings.Count(first, "succeeded,2026-10"); n != 12 || o.ledgerText() != before {
		t.Errorf("%d of 12 were found, or the dry run changed something\n%s", n, first)
	}
}

// T32, T34: ids that differ only by case, and ids that would end the string of a
// query and add to it, are each found by their own payment and by no other.
func TestHostileIdsAreFoundByTheirOwnPaymentOnly(t *testing.T) {
	t.Parallel()
	ids := []string{
		"0015g000001abcD", "0015g000001abcd", `o'neil`, `oneil`, `x" OR created>0 OR metadata["a"]:"b`, `back\slash`, `trailing\`, `per%cent`,
	}
	quote := strings.NewReplacer(`"`, `""`)
	for _, way := range []string{"by search", "by the span"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := customers(120)
			for i, id := range ids {
				list[i*10].id = id
			}
			accounts, invoices := "account_id,stripe_customer,payment_method,currency\n", "account_id,amount,currency\n"
			for _, c := range list {
				accounts += fmt.Sprintf("\"%s\",%s,%s,usd\n", quote.Replace(c.id), c.customer, c.card)
				invoices += fmt.Sprintf("\"%s\",%s,usd\n", quote.Replace(c.id), c.amount)
			}
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accounts))
			o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoices))
			var faults []stripeemu.Fault
			for i := range ids { // every second one does not exist
				name := stripeemu.FaultLoseAnswer
				if i%2 == 1 {
					name = stripeemu.FaultLoseRequest
				}
				faults = append(faults, stripeemu.Fault{Name: name, Customer: list[i*10].customer})
			}
			o.chargesUnder(faults...)
			o.advance(26 * time.Hour)
			if way == "by search" {
				o.flood(1500, "cus_shop")
			}
			r := o.must(75, "reconcile", "--period", october, "--on-absent", "charge")
			for i := range ids {
				want := []string{"succeeded", "pending"}[i%2]
				if got := o.state(list[i*10].id); got != want {
					t.Errorf("%s: %s, want %s\n%s", list[i*10].id, got, want, r)
				}
			}
			o.mustBeWhole()
		})
	}
}

// T47: Stripe's clock may be behind Postgres's by as much as is tolerated; a
// payment that seems older than its charge is found all the same.
func TestAPaymentOlderThanItsChargeByTheClocksIsFound(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.emu.SetOffset(o.emu.Offset() - 100*time.Second)
	o.unanswered(withFate(120, "here", "gone"), lostAnswers...)
	o.advance(26 * time.Hour)
	o.must(75, "reconcile", "--period", october, "--on-absent", "charge")
	if got := o.states(october); got["succeeded"] != 119 || got["pending"] != 1 {
		t.Errorf("%v", got)
	}
}
