package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A period that was charged early and lost by a restore is found by the ordinary
// run: the look begins before the period, whatever the ledger remembers.
func TestALookFindsWhatWasChargedEarly(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(10))
	backup := o.db.Snapshot(t)
	o.setNow(time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC))
	o.month(0, "--early")
	o.db.RestoreSnapshot(t, backup)
	o.setNow(time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC))
	o.emu.ResetLog()
	o.month(3)
	if o.emu.Posts() != 0 {
		t.Errorf("%d POSTs for a period that was charged early", o.emu.Posts())
	}
}

// A period can't be charged before everything that a look reads.
func TestAPeriodCannotBeChargedBeforeItBegins(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports("2026-12", customers(2))
	if r := o.must(3, "run", "--period", "2026-12", "--early"); !strings.Contains(r.stderr, "not even early") || o.emu.Posts() != 0 {
		t.Errorf("%d POSTs\n%s", o.emu.Posts(), r)
	}
}

// However many payments Stripe has that the ledger does not know, the look
// forgets none of them.
func TestALookForgetsNoPaymentHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(1)
	o.imports(october, list)
	o.month(0)
	// Ten thousand others, newer than the one that matters.
	for i := range 10_050 {
		key := fmt.Sprintf("monthly-billing/2026-10/other%d", i)
		form := url.Values{
			"amount": {"1000"}, "currency": {"usd"}, "metadata[billing_key]": {key}, "metadata[billing_job]": {"monthly-billing"},
			"metadata[billing_period]": {october},
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.emu.URL()+"/v1/payment_intents", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer sk_test_emulator")
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Fatalf("create: HTTP %d", res.StatusCode)
		}
	}
	empty := newOffice(t)
	o.env["DATABASE_URL"] = empty.env["DATABASE_URL"]
	empty.db.SetOffset(o.emu.Offset())
	o.db = empty.db
	o.imports(october, list)
	posts := o.emu.Posts()
	o.month(3)
	if got := o.emu.Posts() - posts; got != 0 {
		t.Errorf("%d POSTs for an account that was charged before", got)
	}
}

// One row of a company's own view that can't be used, and one connected account
// that the key may not use, cost only themselves.
func TestOneUnusableRowOrConnectedAccountCostsOnlyItself(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, ConnectedAccounts: []string{"acct_good"}})
	o.exec(`CREATE TABLE public.owed (account_id text, amount numeric, currency text, stripe_account text)`)
	o.exec(`INSERT INTO public.owed VALUES ('own', 10, 'usd', ''), ('good', 10, 'usd', 'acct_good'), ('gone', 10, 'usd', 'acct_gone'),
		('odd', 10, 'usd', 'x'), ('nothing', NULL, 'usd', '')`)
	o.exec(`CREATE OR REPLACE VIEW billing.billable AS SELECT 'monthly-billing'::text COLLATE "C" AS job, '2026-10'::text COLLATE "C" AS period,
		o.account_id COLLATE "C" AS account_id, o.amount, o.currency, ''::text AS description, o.stripe_account, 'cus_' || o.account_id AS stripe_customer,
		'pm_card_visa_' || o.account_id AS payment_method, ''::text AS name, ''::text AS email, 'active'::text AS status FROM public.owed o`)
	o.month(4)
	for account, want := range map[string]string{"own": "succeeded", "good": "succeeded", "gone": "skipped bad_stripe_account",
		"odd": "skipped bad_stripe_account", "nothing": "skipped bad_amount"} {
		if got := one[string](o, `SELECT trim(state || ' ' || reason) FROM billing.charges WHERE account_id = $1`, account); got != want {
			t.Errorf("account %s is %q, want %q", account, got, want)
		}
	}
	o.mustBeWhole()
	// A row without an account can be no charge at all.
	o.exec(`INSERT INTO public.owed VALUES (NULL, 10, 'usd', '')`)
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.month(65)
}

// A limit that the database sets for the application beside it does not break off
// the recording of a month.
func TestAStatementTimeoutOfTheDatabaseDoesNotStopTheMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(20))
	o.exec(`CREATE OR REPLACE VIEW billing.billable AS
		SELECT i.job, i.period, i.account_id, i.amount, i.currency, i.description, a.stripe_account, a.stripe_customer, a.payment_method, a.name, a.email, a.status
		FROM billing.invoices i LEFT JOIN billing.accounts a ON a.account_id = i.account_id WHERE pg_sleep(0.03) IS NOT NULL`)
	o.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout TO ''400ms''', current_database()); END $$`)
	o.month(0)
	o.mustBeWhole()
}

// A pace at which no charge could be sent while its permit lasts is refused
// before anything is claimed.
func TestAPaceThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	for _, flags := range [][]string{
		{"--rate", "0.02", "--lease", "2m"}, {"--rate", "NaN"}, {"--rate", "-1"}, {"--rate", "0.5", "--lease", "2s"},
		{"--concurrency", "8abc"}, {"--concurrency", "0"}, {"--lease", "10ms"}, {"--timeout", "30h"}, {"--wait", "-1s"},
	} {
		o.month(64, flags...)
	}
	if o.emu.RequestCount() != 0 {
		t.Error("Stripe was asked")
	}
}

// A company's own view may name its accounts by numbers; one that can't be
// computed is told as what it is.
func TestAViewOfOnesOwnMayHaveNumbersAsIDs(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	view := func(amount string) {
		o.exec(`DROP VIEW billing.billable`)
		o.exec(`CREATE VIEW billing.billable AS SELECT 'monthly-billing' AS job, '2026-10' AS period, 7 AS account_id, ` + amount + ` AS amount,
			'usd' AS currency, '' AS description, '' AS stripe_account, 'cus_1' AS stripe_customer, 'pm_1' AS payment_method, '' AS name,
			'' AS email, 'active' AS status`)
	}
	view("1.0/0")
	if r := o.month(65); !strings.Contains(r.stderr, "billing.billable") {
		t.Errorf("the view is not named\n%s", r)
	}
	view("10.00")
	o.month(0)
	o.month(0)
	if got := o.state("7"); got != "succeeded" {
		t.Errorf("account 7 is %s", got)
	}
	o.mustBeWhole()
	o.must(64, "run", "--period", "")
}
