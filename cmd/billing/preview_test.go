package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/fixtures/world"
)

// recorded is one row of the ledger, as far as a preview foretells it.
type recorded struct {
	state, reason, currency string
	minor                   int64
}

func (o *office) recorded(period string) map[string]recorded {
	o.t.Helper()
	rows, err := o.db.Pool.Query(o.t.Context(),
		`SELECT account_id, state, reason, currency, coalesce(amount_minor, 0) FROM billing.charges WHERE period = $1`, period)
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	list := map[string]recorded{}
	for rows.Next() {
		var account string
		var r recorded
		if err := rows.Scan(&account, &r.state, &r.reason, &r.currency, &r.minor); err != nil {
			o.t.Fatal(err)
		}
		list[account] = r
	}
	if rows.Err() != nil {
		o.t.Fatal(rows.Err())
	}
	return list
}

// previewed is what preview --json says.
func (o *office) previewed(period string, args ...string) (result, previewJSON) {
	o.t.Helper()
	r := o.must(0, append([]string{"preview", "--period", period, "--json"}, args...)...)
	var p struct{ Details previewJSON }
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
		o.t.Fatal(err, r)
	}
	return r.json(o.t), p.Details
}

// isOpenSkip reports a skipped charge that the next run decides again.
func (r recorded) isOpenSkip() bool {
	switch r.reason {
	case "no_payment_method", "no_customer", "no_account", "paused", "bad_currency", "bad_stripe_account":
		return r.state == "skipped"
	}
	return false
}

// kind is what a preview calls a row, count and sum left out.
func (r recorded) kind() chargeJSON {
	if r.state != "skipped" {
		return chargeJSON{State: "pending", Currency: r.currency}
	}
	return chargeJSON{State: "skipped", Reason: r.reason, Currency: r.currency}
}

// previewThenRun previews a period, runs it, and compares. It reports false if a gate
// stopped it, as foretold.
func (o *office) previewThenRun(period string, args ...string) bool {
	o.t.Helper()
	before := o.recorded(period)
	_, p := o.previewed(period, args...)
	o.emu.ResetLog()
	r := o.run(append([]string{"run", "--period", period}, args...)...)
	if len(p.Gates) > 0 {
		if diff := cmp.Diff(before, o.recorded(period), cmp.AllowUnexported(recorded{})); r.code != 3 || diff != "" || o.emu.Posts() != 0 ||
			!strings.Contains(r.stderr, p.Gates[0].Gate) || !strings.Contains(r.stderr, p.Gates[0].Message) {
			o.t.Errorf("%s: preview foretold %v, and %d POSTs, recorded %s\n%s", period, p.Gates, o.emu.Posts(), diff, r)
		}
		return false
	}
	if r.code != 0 && r.code != 4 {
		o.t.Fatalf("%s\n%s", period, r)
	}
	o.comparePreview(period, before, p)
	return true
}

// comparePreview holds what a preview said against what the run recorded and sent.
func (o *office) comparePreview(period string, before map[string]recorded, p previewJSON) {
	o.t.Helper()
	type sum struct{ Count, Minor int64 }
	want, got := map[chargeJSON]sum{}, map[chargeJSON]sum{}
	sends := int64(0)
	for account, now := range o.recorded(period) {
		was, there := before[account]
		if there && was.state == "pending" {
			sends++
		}
		if there && !was.isOpenSkip() {
			continue
		}
		s := want[now.kind()]
		want[now.kind()] = sum{s.Count + 1, s.Minor + now.minor}
		if now.state != "skipped" {
			sends++
		}
	}
	for _, c := range p.Todo {
		key := chargeJSON{State: c.State, Reason: c.Reason, Currency: c.Currency}
		if got[key] = (sum{c.Count, 0}); c.AmountMinor != nil {
			got[key] = sum{c.Count, *c.AmountMinor}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		o.t.Errorf("%s: recorded (-) is not what was foretold (+):\n%s", period, diff)
	}
	if changes := changesOf(o.recorded(p.Last), o.recorded(period)); p.Last != "" && !cmp.Equal(changes, p.Accounts) {
		o.t.Errorf("%s: beside %s the accounts were foretold otherwise:\n%s", period, p.Last, cmp.Diff(changes, p.Accounts))
	}
	if p.Sends != sends || int64(o.emu.Posts()) != sends {
		o.t.Errorf("%s: %d sends foretold, %d POSTs, %d charges", period, p.Sends, o.emu.Posts(), sends)
	}
}

// changesOf counts how two months of a ledger differ, account by account.
func changesOf(last, now map[string]recorded) map[string]int64 {
	n := map[string]int64{"new": 0, "gone": 0, "up": 0, "down": 0, "same": 0, "moved": 0, "jumped": 0}
	for account, was := range last {
		if is, there := now[account]; was.state != "skipped" && (!there || is.state == "skipped") {
			n["gone"]++
		}
	}
	for account, is := range now {
		was, there := last[account]
		switch {
		case is.state == "skipped":
			continue
		case !there || was.state == "skipped":
			n["new"]++
			continue
		case was.currency != is.currency:
			n["moved"]++
			continue
		case is.minor > was.minor:
			n["up"]++
		case is.minor < was.minor:
			n["down"]++
		default:
			n["same"]++
		}
		if is.minor >= 2*was.minor || 2*is.minor <= was.minor {
			n["jumped"]++
		}
	}
	return n
}

// The demo's company: preview foretells every state, reason, currency, count and sum
// of the run that follows, before it and when a part is recorded already.
func TestPreviewForetellsTheDemosMonth(t *testing.T) {
	t.Parallel()
	w := world.Small()
	o := newOffice(t, stripeemu.Config{Seed: 1})
	for _, c := range w.Customers() {
		o.emu.AddCustomer(stripeemu.Customer{ID: c.ID, Name: c.Name, Email: c.Email})
	}
	for _, m := range w.PaymentMethods() {
		o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: m.ID, Customer: m.Customer, Alias: m.Alias, Detached: m.Detached})
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", string(w.AccountsCSV())))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", string(w.InvoicesCSV())))
	res, _ := o.previewed(october)
	if diff := cmp.Diff(totals(res.Charges), totals(handWritten()), cmp.AllowUnexported(total{})); diff != "" {
		t.Errorf("preview (-) is not the hand-written month (+):\n%s", diff)
	}
	o.previewThenRun(october)
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.previewThenRun(october) // nothing is left but what may mend
	o.mustBeWhole()
}

// total is a count and a sum in major units.
type total struct {
	count  int64
	amount string
}

// totals adds a list up by what can be known before anything is sent.
func totals(list []chargeJSON) map[chargeJSON]total {
	sums := map[chargeJSON]total{}
	for _, c := range list {
		key := chargeJSON{State: c.State, Reason: c.Reason, Currency: c.Currency}
		if c.State != "skipped" {
			key = chargeJSON{State: "pending", Currency: c.Currency}
		}
		amount := decimal.RequireFromString(c.Amount)
		if was := sums[key]; was.count > 0 {
			amount = amount.Add(decimal.RequireFromString(was.amount))
		}
		sums[key] = total{sums[key].count + c.Count, amount.String()}
	}
	return sums
}

// handWritten is the world's month, worked out by hand.
func handWritten() (list []chargeJSON) {
	for _, e := range world.Expected() {
		list = append(list, chargeJSON{State: e.State, Reason: e.Reason, Currency: e.Currency, Count: int64(e.Count), Amount: e.Amount})
	}
	return list
}

// off switches every gate off that compares with another period.
func (o *office) off() {
	for _, gate := range []string{"MAX_GROWTH", "MAX_DROP", "MAX_SINGLE", "MAX_ACCOUNT_GROWTH", "MAX_JUMPED", "MAX_NEW", "MAX_GONE", "MAX_SKIPPED", "MIN_COUNT"} {
		o.env["BILLING_"+gate] = "0"
	}
	o.env["BILLING_ALLOW_SAME"], o.env["BILLING_ALLOW_CURRENCY"] = "true", "usd,eur,jpy,kwd"
}

// on switches them on again.
func (o *office) on() {
	for name := range o.env {
		if strings.HasPrefix(name, "BILLING_MAX_") || strings.HasPrefix(name, "BILLING_ALLOW_") || name == "BILLING_MIN_COUNT" {
			delete(o.env, name)
		}
	}
}

// debt is a row of a random company's own view.
type debt struct{ account, amount, currency, customer, card, status, stripeAccount string }

// randomDebt is an ordinary invoice, or one of every kind that can't be charged.
func randomDebt(r *rand.Rand, n int) debt {
	d := debt{
		account: fmt.Sprintf("r%03d", n), currency: []string{"usd", "usd", "eur", "jpy", "kwd"}[r.IntN(5)],
		customer: fmt.Sprintf("cus_%d", n), card: fmt.Sprintf("pm_card_visa_%d", n), status: "active",
	}
	whole := 1 + r.IntN(300)
	d.amount = map[string]string{"jpy": fmt.Sprint(100 + whole), "kwd": fmt.Sprintf("%d.%d50", whole, r.IntN(10))}[d.currency]
	if d.amount == "" {
		d.amount = fmt.Sprintf("%d.%02d", whole, r.IntN(100))
	}
	switch r.IntN(60) {
	case 0:
		d.amount = "0"
	case 1:
		d.amount = "-" + d.amount
	case 2:
		d.amount = map[string]string{"jpy": "1", "kwd": "0.010"}[d.currency]
		if d.amount == "" {
			d.amount = "0.02"
		}
	case 3:
		d.card = ""
	case 4:
		d.customer = ""
	case 5:
		d.status = ""
	case 6:
		d.status = "paused"
	case 7:
		d.currency = "xx"
	case 8:
		d.amount = "1.00005"
	case 9:
		d.account = " " + d.account
	case 10:
		d.stripeAccount = "nobody"
	case 11, 12, 13:
		d.card = "pm_card_chargeCustomerFail_" + d.customer
	}
	return d
}

// ownCompany replaces the view by one over a table that takes anything.
func (o *office) ownCompany() {
	o.t.Helper()
	o.exec(`CREATE TABLE public.debts (period text, account_id text, amount numeric, currency text, customer text, card text, status text, stripe_account text)`)
	o.exec(`CREATE OR REPLACE VIEW billing.billable AS
		SELECT 'monthly-billing'::text COLLATE "C" AS job, d.period COLLATE "C" AS period, d.account_id COLLATE "C" AS account_id, d.amount,
		       d.currency, ''::text AS description, d.stripe_account, d.customer AS stripe_customer, d.card AS payment_method,
		       ''::text AS name, ''::text AS email, d.status
		FROM public.debts d`)
}

func (o *office) owe(period string, list []debt) {
	o.t.Helper()
	batch := &pgx.Batch{}
	for _, d := range list {
		batch.Queue(`INSERT INTO public.debts VALUES ($1, $2, $3::text::numeric, $4, $5, $6, $7, $8)`,
			period, d.account, d.amount, d.currency, d.customer, d.card, d.status, d.stripeAccount)
	}
	if err := o.db.Pool.SendBatch(o.t.Context(), batch).Close(); err != nil {
		o.t.Fatal(err)
	}
}

// Fifty random months, five companies of ten, some of them recorded in part before,
// some with gates that stop them: preview's numbers are those of the run that follows,
// and it names the gate that stops.
func TestPreviewForetellsRandomMonths(t *testing.T) {
	t.Parallel()
	for company := range uint64(5) {
		t.Run(fmt.Sprint("company ", company), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(5, company))
			o := newOffice(t)
			o.ownCompany()
			var list []debt
			for month := time.January; month <= time.October; month++ {
				period := fmt.Sprintf("2027-%02d", month)
				o.setNow(time.Date(2027, month+1, 1, 0, 5, 0, 0, time.UTC))
				list = nextMonth(r, list)
				o.randomMonth(r, period, list)
			}
			o.mustBeWhole()
		})
	}
}

// nextMonth changes a few invoices, or many.
func nextMonth(r *rand.Rand, last []debt) (list []debt) {
	changes, n := 2+r.IntN(12)*r.IntN(2), 0
	for i, d := range last {
		if r.IntN(100) < changes {
			d = randomDebt(r, i)
		}
		if r.IntN(100) >= changes {
			list = append(list, d)
		}
		n = i + 1
	}
	for range max(20+r.IntN(40)-len(list), r.IntN(3)) {
		n++
		list = append(list, randomDebt(r, 100+n+r.IntN(800)))
	}
	seen := map[string]bool{}
	var unique []debt
	for _, d := range list {
		if !seen[d.account] {
			seen[d.account] = true
			unique = append(unique, d)
		}
	}
	return unique
}

func (o *office) randomMonth(r *rand.Rand, period string, list []debt) {
	o.t.Helper()
	half := r.IntN(len(list))
	switch r.IntN(4) {
	case 0: // a part is charged, and then comes the rest
		o.owe(period, list[:half])
		o.off()
		if half > 0 {
			o.previewThenRun(period)
			o.run("reopen", "--period", period, "--why", "test")
		}
		o.owe(period, list[half:])
	case 1: // all is recorded, and some of it is not sent
		o.owe(period, list)
		o.off()
		o.exec(`INSERT INTO billing.pauses (job, account_id, paused_by, why) SELECT 'monthly-billing', account_id, 'test', 'test'
			FROM public.debts WHERE period = $1 AND account_id LIKE '%3'`, period)
		o.run("run", "--period", period)
		o.exec(`UPDATE billing.pauses SET resumed_at = billing.now(), resumed_by = 'test' WHERE resumed_at IS NULL`)
		o.run("reopen", "--period", period, "--why", "test")
	default:
		o.owe(period, list)
	}
	if r.IntN(3) == 0 {
		o.on()
		if o.previewThenRun(period) {
			return
		}
	}
	o.off()
	o.previewThenRun(period)
}

// The plan is who pays how much: another card leaves it as it is, another amount
// or a new account does not.
func TestAPlanIsWhoPaysHowMuch(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(30)
	o.imports(october, list)
	first, _ := o.previewed(october)
	list[3].card, list[4].card, list[5].customer = "pm_another", "", "cus_another"
	o.imports(october, list)
	if second, _ := o.previewed(october); second.Plan != first.Plan {
		t.Errorf("another card made another plan: %s after %s", second.Plan, first.Plan)
	}
	list[3].amount = "10.05"
	o.must(0, "import", "invoices", "--period", october, "--replace", "--file", o.file("invoices.csv", invoicesCSV(list)))
	third, _ := o.previewed(october)
	list = append(list, customer{"zz", "cus_zz", "pm_zz", "1.00", "usd"})
	o.imports(october, list)
	fourth, _ := o.previewed(october)
	if third.Plan == first.Plan || fourth.Plan == third.Plan {
		t.Errorf("plans %s, with another amount %s, with a new account %s", first.Plan, third.Plan, fourth.Plan)
	}
}

// twoMonths charges September and imports an October of which every account is
// another kind of change.
func (o *office) twoMonths() {
	o.t.Helper()
	o.setNow(time.Date(2026, 10, 1, 0, 5, 0, 0, time.UTC))
	o.imports("2026-09", []customer{
		{"down", "cus_1", "pm_1", "30.00", "usd"}, {"gone", "cus_2", "pm_2", "20.00", "usd"}, {"moved", "cus_3", "pm_3", "40.00", "usd"},
		{"same", "cus_4", "pm_4", "50.00", "usd"}, {"up", "cus_5", "pm_5", "60.00", "usd"},
	})
	o.must(0, "run", "--period", "2026-09")
	o.setNow(time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC))
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", `account_id,stripe_customer,payment_method,currency,name,card_expires
down,cus_1,pm_1,usd,=Down,2026-10-31
new,cus_6,pm_6,eur,New,2027-01
same,cus_4,,usd,Same,2026-09
up,cus_5,pm_5,usd,Up,
`))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", `account_id,amount,currency
down,12.00,usd
moved,41.00,eur
new,7.00,eur
same,50.00,usd
up,200.00,usd
`))
}

// What is odd about a month stands in the table and in --json: who is new, gone, up,
// down and in another currency, the largest, the expired cards, and how long it takes.
func TestPreviewShowsWhatIsOdd(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.twoMonths()
	res, p := o.previewed(october, "--rate", "0.5")
	if want := map[string]int64{"new": 1, "gone": 2, "up": 1, "down": 1, "same": 0, "moved": 1, "jumped": 2}; !cmp.Equal(p.Accounts, want) {
		t.Errorf("accounts:\n%s", cmp.Diff(p.Accounts, want))
	}
	if want := []currencyJSON{{"eur", 2, "48.00", 0, "", 4800, 0}, {"usd", 2, "212.00", 5, "200.00", 21200, 20000}}; !cmp.Equal(p.Currencies, want) {
		t.Errorf("currencies:\n%s", cmp.Diff(p.Currencies, want))
	}
	if len(p.Largest) != 4 || p.Largest[2] != (accountChangeJSON{"up", "usd", "200.00", "60.00"}) || p.Steepest[0].AccountID != "up" {
		t.Errorf("largest %v, steepest %v", p.Largest, p.Steepest)
	}
	if p.Last != "2026-09" || p.ExpiredCards != 2 || p.Sends != 4 || p.TakesSeconds != 8 || !p.Fits || res.Outcome != "preview" {
		t.Errorf("%+v", p)
	}
	if _, p := o.previewed(october, "--rate", "0.1", "--timeout", "30s"); p.Fits || p.TakesSeconds != 40 {
		t.Errorf("40 seconds fit into 30: %+v", p)
	}
	table := o.must(0, "preview", "--period", october, "--rate", "0.5").stdout
	for _, want := range []string{"beside 2026-09: 1 new, 2 gone, 1 pay more, 1 less, 0 the same; 2 at least twice or at most half as much; 1 in another currency",
		"2 accounts: down, same", "4, which takes 8s at the rate", "200.00", "no_payment_method", "plan " + res.Plan, "nothing was written and nothing was sent"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not have %q\n%s", want, table)
		}
	}
	if r := o.must(0, "preview", "--period", october, "--rate", "0.1", "--timeout", "30s"); !strings.Contains(r.stdout, "longer than the window or the deadline") {
		t.Errorf("it fits?\n%s", r)
	}
}

// The list has every account of both months, in a file or on stdout, and no cell
// that a spreadsheet would run.
func TestPreviewListsEveryAccount(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.twoMonths()
	path := filepath.Join(t.TempDir(), "preview.csv")
	o.must(0, "preview", "--period", october, "--format", "csv", "--output", path)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out := o.must(0, "preview", "--period", october, "--format", "csv", "--output", "-").stdout; out != string(file) {
		t.Errorf("the file and stdout differ:\n%s\n%s", file, out)
	}
	lines, err := csv.NewReader(strings.NewReader(string(file))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		previewColumns,
		{"down", "'=Down", "charge", "", "", "usd", "12.00", "30.00", "usd", "down", "cus_1", "pm_1"},
		{"gone", "", "gone", "", "", "usd", "", "20.00", "usd", "gone", "", ""},
		{"moved", "", "charge", "", "", "eur", "41.00", "40.00", "usd", "moved", "cus_3", "pm_3"},
		{"new", "New", "charge", "", "", "eur", "7.00", "", "", "new", "cus_6", "pm_6"},
		{"same", "Same", "skip", "no_payment_method", "", "usd", "", "50.00", "usd", "gone", "cus_4", ""},
		{"up", "Up", "charge", "", "", "usd", "200.00", "60.00", "usd", "up", "cus_5", "pm_5"},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	o.must(64, "preview", "--period", october, "--format", "csv", "--json")
	o.must(64, "preview", "--period", october, "--output", path)
	o.must(64, "preview", "--period", october, "--format", "xml")
	o.must(73, "preview", "--period", october, "--format", "csv", "--output", filepath.Join(path, "no", "folder.csv"))
}
