package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// sqlOfPage reads the SQL that a page tells people to type, block by block.
func sqlOfPage(t *testing.T, path string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "```sql\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

// Customers of the shop, whose ids are not ours.
const (
	shopPays     = "5d1f0f6e-7c1b-4a53-9f0a-000000000001"
	shopEuro     = "5d1f0f6e-7c1b-4a53-9f0a-000000000002"
	shopYen      = "5d1f0f6e-7c1b-4a53-9f0a-000000000003"
	shopDeclined = "5d1f0f6e-7c1b-4a53-9f0a-000000000004"
	shopCardless = "5d1f0f6e-7c1b-4a53-9f0a-000000000005"
	shopBlocked  = "5d1f0f6e-7c1b-4a53-9f0a-000000000006"
	shopLost     = "5d1f0f6e-7c1b-4a53-9f0a-000000000007"
	shopNobody   = "5d1f0f6e-7c1b-4a53-9f0a-000000000008" // a bill without a customer
	shopLate     = "5d1f0f6e-7c1b-4a53-9f0a-000000000009"
	shopStranger = "5d1f0f6e-7c1b-4a53-9f0a-00000000000a" // owes nothing
)

const shopRows = `
INSERT INTO shop.customer (id, mail, title, blocked, stripe)
SELECT ('5d1f0f6e-7c1b-4a53-9f0a-00000000000' || i)::uuid, 'c' || i || '@shop.example', 'Customer ' || i, i = 6, 'cus_' || i
FROM generate_series(1, 9) i WHERE i <> 8;
INSERT INTO shop.card (customer, token, main, removed)
SELECT id, CASE stripe WHEN 'cus_4' THEN 'pm_card_chargeDeclined_4' ELSE 'pm_card_visa_' || stripe END, true, NULL::timestamptz FROM shop.customer WHERE stripe <> 'cus_5'
UNION ALL SELECT id, 'pm_old_' || stripe, true, now() FROM shop.customer
UNION ALL SELECT id, 'pm_spare_' || stripe, false, NULL FROM shop.customer;
INSERT INTO shop.bill (number, buyer, month, cents, cur, memo, final, removed)
SELECT i, ('5d1f0f6e-7c1b-4a53-9f0a-00000000000' || i)::uuid, date '2026-10-01', 1000 + i, CASE i WHEN 2 THEN 'EUR' WHEN 3 THEN 'JPY' ELSE 'USD' END,
    'Seats', true, NULL::timestamptz FROM generate_series(1, 8) i;
INSERT INTO shop.bill (number, buyer, month, cents, cur, memo, final, removed)
VALUES (21, '5d1f0f6e-7c1b-4a53-9f0a-000000000001', '2026-10-31', 250, 'USD', 'Storage', true, NULL),
       (22, '5d1f0f6e-7c1b-4a53-9f0a-000000000001', '2026-10-31', 9999, 'USD', 'a mistake', true, now()),
       (23, '5d1f0f6e-7c1b-4a53-9f0a-000000000009', '2026-10-31', 1200, 'USD', 'not yet final', false, NULL),
       (24, '5d1f0f6e-7c1b-4a53-9f0a-000000000001', '2026-11-01', 1001, 'USD', 'next month', true, NULL);`

// shop is a company with tables of its own, set up as docs/own-tables.md says.
func shop(t *testing.T) staff {
	t.Helper()
	s := installed(t)
	blocks := sqlOfPage(t, "../../docs/own-tables.md")
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of SQL, want tables, grants and the view", len(blocks))
	}
	s.owner.exec(blocks[0])
	s.owner.exec(shopRows)
	s.owner.exec(s.named(blocks[1]))
	if err := s.owner.sql(s.named(blocks[2])); err != nil {
		t.Fatalf("the view of the page: %v", err)
	}
	if err := s.run.sql(`SELECT 1 FROM shop.bill`); err == nil {
		t.Error("the run reads the shop's tables itself: the page says that it need not")
	}
	return s
}

// mustBe wants states and reasons of October's charges, and the amounts that Stripe
// was asked for.
func (o *office) mustBe(want map[string]string) {
	o.t.Helper()
	for account, is := range want {
		got := one[string](o, `SELECT trim(state || ' ' || reason || ' ' || coalesce(amount_minor::text, '') || ' ' || currency) FROM billing.charges WHERE account_id = $1`, account)
		if got != is {
			o.t.Errorf("account %s is %q, want %q", account, got, is)
		}
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charges`); n != len(want) {
		o.t.Errorf("%d charges, want %d", n, len(want))
	}
}

// A company replaces the view by one over tables that are not ours: ids are uuids,
// amounts are whole cents, currencies are in capitals, names are others, and what was
// deleted is still there. The month runs over it from the preview to the export, and so
// does all that people do about single charges.
func TestACompanysOwnTablesAreBilled(t *testing.T) {
	t.Parallel()
	s := shop(t)
	o := s.run
	o.ungated()
	if _, checks := o.doctor("--period", october); checks["billable"].Status != statusOK || checks["invoices"].Status != statusOK {
		t.Errorf("doctor: %+v, %+v", checks["billable"], checks["invoices"])
	}
	o.must(65, "close", "--period", october)
	if r := s.read.must(0, "preview", "--period", october); !strings.Contains(r.stdout, "10.02") || !strings.Contains(r.stdout, "1003") {
		t.Errorf("the preview has other sums\n%s", r)
	}
	o.unrecorded()
	o.chargesUnder(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: shopLost})
	o.advance(26 * time.Hour)
	o.must(4, "reconcile", "--period", october)
	o.mustBe(map[string]string{
		shopPays: "succeeded  1251 usd", shopEuro: "succeeded  1002 eur", shopYen: "succeeded  1003 jpy", shopDeclined: "declined generic_decline 1004 usd",
		shopCardless: "skipped no_payment_method  usd", shopBlocked: "skipped paused  usd", shopLost: "held absent 1007 usd", shopNobody: "skipped no_account  usd",
	})
	s.orders()
	o.month(0)
	o.mustBe(map[string]string{
		shopPays: "succeeded  1251 usd", shopEuro: "succeeded  1002 eur", shopYen: "succeeded  1003 jpy", shopDeclined: "declined generic_decline 1004 usd",
		shopCardless: "succeeded  1005 usd", shopBlocked: "void   usd", shopLost: "succeeded  1007 usd", shopNobody: "skipped no_account  usd",
	})
	s.changes()
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.must(0, "reconcile", "--period", october, "--rebuild", "--why", "test")
	o.month(0)
	o.mustBeWhole()
}

// unrecorded asks for accounts that have no charge.
func (o *office) unrecorded() {
	o.t.Helper()
	for account, says := range map[string]string{shopEuro: "has an invoice of 10.02 EUR", shopStranger: "no invoice", "no uuid": "no invoice", strings.ToUpper(shopStranger): "no invoice"} {
		if r := o.must(64, "show", "--period", october, "--account", account); !strings.Contains(r.stderr, says) {
			o.t.Errorf("%s: %s", account, r)
		}
	}
}

// orders is what people do about single charges of the shop.
func (s staff) orders() {
	o := s.finance
	o.t.Helper()
	o.must(0, "release", "--period", october, "--account", shopLost, "--why", "test")
	o.must(0, "void", "--period", october, "--account", shopBlocked, "--why", "test")
	o.exec(`INSERT INTO shop.card (customer, token, main) VALUES ('` + shopCardless + `', 'pm_card_visa_5', true)`)
	o.must(0, "requeue", "--period", october, "--account", shopCardless, "--why", "test")
	for _, account := range []string{"no uuid", shopStranger} {
		o.must(64, "requeue", "--period", october, "--account", account, "--why", "test")
		o.must(64, "void", "--period", october, "--account", account, "--why", "test")
		o.must(64, "release", "--period", october, "--account", account, "--why", "test")
	}
	o.must(0, "pause", "--account", shopPays, "--why", "test")
	o.must(0, "resume", "--account", shopPays)
}

// changes is what the page says of tables that change once the month was recorded.
func (s staff) changes() {
	o := s.run
	o.t.Helper()
	r := s.read.must(0, "export", "charges", "--period", october, "--output", "-")
	if strings.Count(r.stdout, "\n") != 9 || !strings.Contains(r.stdout, shopPays+",Customer 1,") || !strings.Contains(r.stdout, ",12.51,usd,1251,") {
		o.t.Errorf("the export is\n%s", r.stdout)
	}
	if r := s.read.must(0, "show", "--period", october, "--account", shopPays); !strings.Contains(r.stdout, "12.51 usd") {
		o.t.Errorf("show: %s", r)
	}
	posts := o.emu.Posts()
	o.exec(`UPDATE shop.bill SET cents = 1003 WHERE number = 2`)
	if r := o.month(4); !strings.Contains(r.stderr, "another amount") {
		o.t.Errorf("a changed amount: %s", r)
	}
	o.exec(`UPDATE shop.bill SET cents = 1002 WHERE number = 2`)
	o.month(0)
	o.exec(`INSERT INTO shop.bill VALUES (30, '` + shopYen + `', '2026-10-05', 5, 'USD', 'another currency', true)`)
	if r := o.month(65); !strings.Contains(r.stderr, "row too many") {
		o.t.Errorf("two rows of one account: %s", r)
	}
	o.exec(`DELETE FROM shop.bill WHERE number = 30`)
	if o.emu.Posts() != posts {
		o.t.Error("a change of what is recorded sent something")
	}
	o.exec(`UPDATE shop.bill SET final = true WHERE number = 23`)
	o.month(4)
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.month(0)
	if o.state(shopLate) != "succeeded" || o.emu.Posts() != posts+1 {
		o.t.Errorf("the late bill is %s, %d were sent", o.state(shopLate), o.emu.Posts()-posts)
	}
}
