package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

var updateDocs = flag.Bool("update", false, "write docs/answers.md anew")

const answersPage = "../../docs/answers.md"

// answerCase is one kind of answer, given to one account of its own, and what must
// be true afterwards. The expectations are worked out from what an answer proves,
// not from what the program does.
type answerCase struct {
	id, says string
	card     string // Stripe's test name; "" is one that pays
	amount   string // "" is 10.00 usd
	currency string
	faults   []stripeemu.Fault
	prepare  func(*office, customer)

	state       string // and reason, as "declined: lost_card"
	sends, open int    // sends -1: as many as the time allows, two at least
	intents     string
	later       string // state and reason after a later run without the fault
}

// answerOffice is the accounts whose run ends with one exit code: a month ends
// with the worst code of its rows, so rows of different codes don't share one.
type answerOffice struct {
	exit  int
	cfg   stripeemu.Config
	flags []string
	rows  []answerCase

	o     *office
	runs  process
	first outcome
	seen  []seenAnswer
}

// seenAnswer is what one account came to.
type seenAnswer struct {
	state       string
	sends, open int
	intents     string
	reads       string
	later       string
	laterAt     string // the PaymentIntents then
}

func (o *office) seed(c customer) {
	o.emu.AddCustomer(stripeemu.Customer{ID: c.customer})
	o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: c.card, Customer: c.customer})
}

// useKeyBefore sends something else under the charge's key, as another program
// on the same Stripe account would.
func useKeyBefore(o *office, c customer) {
	o.t.Helper()
	o.seed(c)
	req, err := http.NewRequestWithContext(o.t.Context(), http.MethodPost, o.emu.URL()+"/v1/payment_intents", strings.NewReader("amount=100&currency=usd"))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_emulator")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", billingKey(c.id))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
		o.t.Fatalf("use the key before: HTTP %d", res.StatusCode)
	}
}

func billingKey(account string) string { return "monthly-billing/" + october + "/" + account }

// open installs an office with an ordinary customer, charged first, beside the
// rows, and starts its month.
func (g *answerOffice) open(t *testing.T) {
	t.Helper()
	g.o = newOffice(t, g.cfg)
	list := []customer{{id: "a-ordinary", customer: "cus_ordinary", card: "pm_card_visa_ordinary", amount: "10.00", currency: "usd"}}
	g.o.seed(list[0])
	for _, row := range g.rows {
		c := customer{id: row.id, customer: "cus_" + row.id, card: row.card + "_" + row.id, amount: row.amount, currency: row.currency}
		if row.card == "" {
			c.card = "pm_card_visa_" + row.id
		}
		if row.amount == "" {
			c.amount = "10.00"
		}
		if row.currency == "" {
			c.currency = "usd"
		}
		if row.prepare == nil {
			row.prepare = (*office).seed
		}
		row.prepare(g.o, c)
		for _, f := range row.faults {
			f.Account = row.id
			g.o.emu.Inject(f)
		}
		list = append(list, c)
	}
	g.o.imports(october, list)
	g.runs = g.o.start(append([]string{"run", "--period", october, "--concurrency", "1"}, g.flags...)...)
}

// look reads the ledger, Stripe and the screen after the run.
func (g *answerOffice) look(t *testing.T) {
	t.Helper()
	g.first = g.runs.wait()
	if g.first.code != g.exit {
		t.Errorf("%s: want exit %d\n%s", g.rows[0].says, g.exit, g.first)
	}
	for _, row := range g.rows {
		g.seen = append(g.seen, seenAnswer{
			state:   g.o.stateAndReason(row.id),
			sends:   one[int](g.o, `SELECT sends FROM billing.charges WHERE account_id = $1`, row.id),
			open:    one[int](g.o, `SELECT open_sends FROM billing.charges WHERE account_id = $1`, row.id),
			intents: g.o.intentsText(row.id),
			reads:   g.o.reads(row.id),
		})
	}
	g.o.mustBeWhole()
}

// needsLater reports that something is pending that a later run is about.
func (g *answerOffice) needsLater() bool {
	return slices.ContainsFunc(g.rows, func(r answerCase) bool { return r.later != "" })
}

// again starts the month once more, two hours later and without the faults.
func (g *answerOffice) again() {
	g.o.emu.ClearFaults()
	g.o.advance(2 * time.Hour)
	g.runs = g.o.start("run", "--period", october, "--concurrency", "1")
}

func (g *answerOffice) lookAgain(t *testing.T) {
	t.Helper()
	g.runs.wait()
	for i, row := range g.rows {
		g.seen[i].later = g.o.stateAndReason(row.id)
		g.seen[i].laterAt = g.o.intentsText(row.id)
	}
	g.o.mustBeWhole()
}

func (o *office) stateAndReason(account string) string {
	o.t.Helper()
	return one[string](o, `SELECT state || CASE WHEN reason = '' THEN '' ELSE ': ' || reason END FROM billing.charges WHERE account_id = $1`, account)
}

// intentsText is what Stripe has for an account: "1 succeeded".
func (o *office) intentsText(account string) string {
	count := map[string]int{}
	for _, pi := range o.emu.IntentsFor(billingKey(account)) {
		count[pi.Status]++
	}
	var parts []string
	for status, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, status))
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return noIntents
	}
	return strings.Join(parts, ", ")
}

var (
	shownLine = regexp.MustCompile(`(?m)^(state|declined with|the bank said|sends) +(.*)$`)
	aTime     = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?( UTC|Z)?`)
)

// reads is what billing show says of the state, the decline and the sends, with
// "…" for times.
func (o *office) reads(account string) string {
	o.t.Helper()
	var lines []string
	for _, m := range shownLine.FindAllStringSubmatch(o.must(0, "show", "--account", account, "--period", october).stdout, -1) {
		lines = append(lines, m[1]+" "+strings.TrimSpace(aTime.ReplaceAllString(m[2], "…")))
	}
	return strings.Join(lines, "<br>")
}

// Every answer that Stripe, or the network before it, gives leaves the state that
// it proves and no other; nobody is called declined for Stripe's fault or ours,
// nobody pays twice, and docs/answers.md says so.
func TestEveryAnswerAndWhatTheLedgerSaysOfIt(t *testing.T) {
	t.Parallel()
	offices := answerOffices()
	for _, g := range offices {
		g.open(t)
	}
	for _, g := range offices {
		g.look(t)
		if g.needsLater() {
			g.again()
		}
	}
	for _, g := range offices {
		if g.needsLater() {
			g.lookAgain(t)
		}
		for i, row := range g.rows {
			row.judge(t, g.seen[i])
		}
	}
	page := answersText(offices)
	t.Log(page)
	if t.Failed() {
		return // the page says that nothing is wrong
	}
	if *updateDocs {
		if err := os.WriteFile(answersPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(answersPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(kept), page); diff != "" {
		t.Errorf("docs/answers.md is not what happens; go test ./cmd/billing -run EveryAnswer -update writes it anew (-kept +now):\n%s", diff)
	}
}

// judge compares what an account came to with what its answer proves.
func (row answerCase) judge(t *testing.T, got seenAnswer) {
	t.Helper()
	sends := got.sends
	if row.sends < 0 && sends >= 2 {
		sends = row.sends
	}
	want := []any{row.state, row.sends, row.open, row.intents, row.later}
	if diff := cmp.Diff(want, []any{got.state, sends, got.open, got.intents, got.later}); diff != "" {
		t.Errorf("%s: state, sends, open sends, PaymentIntents, later (-want +got):\n%s", row.says, diff)
	}
	if row.card == "" && strings.Contains(got.state+got.reads+got.later, "declined") {
		t.Errorf("%s: a customer is called declined for what is not the card's fault: %s", row.says, got.reads)
	}
	if !strings.Contains(got.reads, "state "+row.state) {
		t.Errorf("%s: a person reads another state than the ledger has: %s", row.says, got.reads)
	}
}

const answersIntro = `# Every answer, and what the ledger says of it

Written by a test (TestEveryAnswerAndWhatTheLedgerSaysOfIt in cmd/billing), which runs the real program against the
emulator and fails if one cell is not true any more; ` + "`go test ./cmd/billing -run EveryAnswer -update`" + ` writes the page anew.

A charge leaves pending only on proof. A PaymentIntent with a known status is proof, and so is a decline by the card's
bank, and a refusal that Stripe makes before it does anything. Whatever else comes back (no answer, half an answer,
somebody else's answer, an error of Stripe's own) says nothing about the money: the charge stays pending and is sent
again under the same key, byte for byte the same, up to six times in one run; a later run goes on. Nobody is declined
for that, and one key never brings two payments. What a later run can't find out either (an error that Stripe keeps
under the key for a day, a key that something else was sent under) waits for a look at Stripe: see
[runbook.md](runbook.md). An answer that does not come within a minute reads ` + "`timeout`" + `, and is what a dead connection
is; billing/gateway tests that one, with less than a minute, and that a handshake that fails sends nothing.

- **sends**: POSTs that left. **open**: those of which it is not known whether Stripe carried them out. *many*: as often as
  the time allowed; Stripe turned each away at its door, which uses up nothing.
- **exit**: the code of a run whose only trouble was this. The README says what each code asks for.
- **at Stripe**: PaymentIntents that carry the charge's billing key. Those that require something took no money.
- **a person reads**: what ` + "`billing show`" + ` prints, times as …
- **later**: after another run two hours on, when the trouble was over; empty where none was made.

| answer | state | sends | open | exit | at Stripe | a person reads | later |
|---|---|---|---|---|---|---|---|
`

// answersText is docs/answers.md.
func answersText(offices []*answerOffice) string {
	var b strings.Builder
	b.WriteString(answersIntro)
	rows := 0
	for _, g := range offices {
		for i, row := range g.rows {
			got, sends, later := g.seen[i], fmt.Sprint(g.seen[i].sends), g.seen[i].later
			if row.sends < 0 {
				sends, got.reads = "many", manySends.ReplaceAllString(got.reads, "sends many$1")
			}
			if got.laterAt != "" && got.laterAt != got.intents {
				later += "; at Stripe " + got.laterAt
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %s | %s | %s |\n", row.says, got.state, sends, got.open, g.first.code, got.intents, got.reads, later)
			rows++
		}
	}
	fmt.Fprintf(&b, "\n%d answers, 0 wrong.\n", rows)
	return b.String()
}

var manySends = regexp.MustCompile(`sends \d+(.*?)$`)
