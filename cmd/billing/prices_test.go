package main

import (
	"strings"
	"testing"
	"time"
)

// Prices come in whole or not at all; the same file again, however it is written,
// changes nothing; a changed list is a new version, and the old one is kept.
func TestPricesComeInByVersions(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.must(64, "import", "prices").says(t, "--file is missing")
	o.must(0, "prices", "list").says(t, "there are no prices; bring them in: billing import prices --file F")
	before := o.invoiced()
	o.prices(0, pricesYAML, "--dry-run").says(t, "1 price list, 1 new", "usd from 2026-01, version 1", nothingDone)
	if o.invoiced() != before {
		t.Error("a dry run changed something")
	}
	o.prices(0, pricesYAML, "--by", "ann").says(t, "1 id has a fee of its own and no account: \"a0002\"")
	done := o.invoiced()
	rewritten := strings.NewReplacer(`"20.00"`, "20", `"0.0049"`, "0.00490", "usd", "USD", "    metrics:", "    # what it costs\n    metrics:").Replace(pricesYAML)
	o.prices(0, rewritten, "--by", "bob").says(t, "1 price list, nothing changed")
	if o.invoiced() != done {
		t.Errorf("the same prices again changed\n%s\nto\n%s", done, o.invoiced())
	}
	o.prices(0, strings.Replace(pricesYAML, "0.0049", "0.0050", 1)).says(t, "0 new, 1 changed", "usd from 2026-01, version 2")
	o.prices(0, strings.Replace(pricesYAML, "2026-01", "2026-11", 1)).says(t, "1 new", "1 other list stays valid: not in this file")
	o.must(0, "prices", "list").says(t, "2026-01", "2026-11", "20.00", "prices.yaml")
	if r := o.must(0, "prices", "list", "--period", october, "--json"); strings.Count(r.stdout, "valid_from") != 1 || !strings.Contains(r.stdout, `"valid_from": "2026-01"`) {
		t.Error(r)
	}
	o.must(64, "prices", "list", "--period", "2026-1")
	if got := one[string](o, `SELECT string_agg(concat_ws(' ', valid_from, version, imported_by), ', ' ORDER BY valid_from, version) FROM billing.price_lists WHERE version = 1`); !strings.HasPrefix(got, "2026-01 1 ann") {
		t.Errorf("the first version is %s", got)
	}
}

// Every mistake is named with its place, and nothing comes in.
func TestAFileOfPricesWithMistakesIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	before := o.invoiced()
	r := o.prices(65, strings.Replace(strings.Replace(pricesYAML, "unit: GB", "unti: GB", 1), "1000", "1e3", 1))
	r.says(t, "has 2 mistakes", `:8:51: included "1e3": want plain digits`, `:9:37: metric "unti": is not known here; there are unit_price, included, unit`, "nothing was imported")
	if o.invoiced() != before {
		t.Error("a refused file changed something")
	}
	o.must(64, "import", "prices", "--file", "nothing.yaml").says(t, "there is no such file")
}

// What invoices that are not charged were made with may change: it says for which
// months to make them again, and that does it. What charges stand on may not, and no
// list may be put before it; a later month's may.
func TestPricesThatChargesStandOnAreFrozen(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.complete()
	o.invoice(0)
	o.prices(0, strings.Replace(pricesYAML, "20.00", "21.00", 1)).says(t, "2 invoices of 2026-10 were made with other prices: billing invoice --period 2026-10")
	o.must(0, "explain", "--account", "a0001", "--period", october).says(t, "version 1", "it agrees")
	if d := o.invoice(0, "--json").invoiceDetails(t); d.Changed != 2 {
		// a0002 has a fee of its own; its lines name the new version.
		t.Errorf("made again: %+v", d)
	}
	o.must(0, "explain", "--account", "a0001", "--period", october).says(t, "version 2", "23.50 usd", "it agrees")
	o.month(0)
	before := o.invoiced()
	o.prices(65, pricesYAML).says(t, "the prices of usd from 2026-01 would change what 2 charged invoices of 2026-10 were made with", "valid_from: 2026-11 or a later month")
	for _, month := range []string{"2026-05", "2026-10"} {
		o.prices(65, strings.Replace(pricesYAML, "2026-01", month, 1)).says(t, "the prices of usd from "+month+" would change")
	}
	if o.invoiced() != before {
		t.Error("a refused file changed something")
	}
	o.prices(0, strings.Replace(pricesYAML, "2026-01", "2026-11", 1))
	o.prices(0, strings.Replace(pricesYAML, "2026-01", "2025-12", 1))
	o.invoice(0).says(t, "nothing changed")
}

// twoLists are the prices of October and those from November on.
func twoLists(october string) string {
	return october + strings.Replace(strings.TrimPrefix(pricesYAML, "prices:\n"), "2026-01", "2026-11", 1)
}

// lateInNovember is December: October and November are invoiced, and November has a line of
// late usage of October.
func lateInNovember(t *testing.T) *office {
	t.Helper()
	o := usageOffice(t, 2)
	o.prices(0, twoLists(pricesYAML))
	o.complete()
	o.invoice(0)
	o.used("late", "a0001", "api_calls", "100", "2026-10-07T10:00:00Z")
	o.advance(30 * 24 * time.Hour)
	o.metered()
	o.must(0, "invoice", "--period", "2026-11")
	if n := one[int](o, `SELECT count(*) FROM billing.invoice_lines WHERE kind = 'late' AND period = '2026-11' AND list_from = '2026-01'`); n != 1 {
		t.Fatalf("November has %d late lines by October's prices, want 1", n)
	}
	return o
}

// Late usage is priced by the list of its own month: whoever changes that one is told of the later
// month too, until it is invoiced again.
func TestStaleLateLinesOfLaterMonthsAreNamed(t *testing.T) {
	t.Parallel()
	o := lateInNovember(t)
	r := o.prices(0, twoLists(strings.Replace(pricesYAML, "0.0049", "0.0050", 1)))
	r.says(t, "2 invoices of 2026-10 were made with other prices", "1 invoice of 2026-11 was made with other prices: billing invoice --period 2026-11")
	o.invoice(0)
	if r := o.prices(0, twoLists(strings.Replace(pricesYAML, "0.0049", "0.0050", 1))); !strings.Contains(r.stderr, "of 2026-11 was made") || strings.Contains(r.stderr, "of 2026-10 w") {
		t.Error(r)
	}
	o.must(0, "invoice", "--period", "2026-11").says(t, "1 changed")
	if r := o.prices(0, twoLists(strings.Replace(pricesYAML, "0.0049", "0.0050", 1))); strings.Contains(r.stderr, "other prices") {
		t.Error(r)
	}
}

// Once its month is charged, late usage keeps the version that it was charged by: one that adds a
// metric makes nothing stale.
func TestLateLinesOfChargedMonthsAreNotStale(t *testing.T) {
	t.Parallel()
	o := lateInNovember(t)
	o.month(0)
	r := o.prices(0, twoLists(pricesYAML+"      logins: {unit_price: 0}\n"))
	if r.says(t, "usd from 2026-01, version 2"); strings.Contains(r.stderr, "other prices") {
		t.Error(r)
	}
	o.must(0, "invoice", "--period", "2026-11").says(t, "nothing changed")
}

// What a metric is counted in is a word for people: it may be added and changed where charges
// stand on the list. What it costs may not, under cover of that either.
func TestUnitsMayBeNamedInChargedPrices(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	bare := strings.NewReplacer(", unit: call", "", ", unit: GB", "").Replace(pricesYAML)
	o.prices(0, bare)
	o.complete()
	o.invoice(0)
	o.month(0)
	o.prices(65, strings.Replace(pricesYAML, "0.0049", "0.0050", 1)).says(t, "would change what 2 charged invoices")
	o.prices(65, strings.Replace(pricesYAML, "included: 1000, ", "", 1)).says(t, "would change what 2 charged invoices")
	o.prices(0, pricesYAML).says(t, "usd from 2026-01, version 3")
	o.prices(0, strings.Replace(pricesYAML, "unit: call", "unit: request", 1)).says(t, "usd from 2026-01, version 4")
	o.invoice(0).says(t, "nothing changed")
	o.must(0, "explain", "--account", "a0001", "--period", october).says(t, "it agrees")
}
