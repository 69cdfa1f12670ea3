package main

import (
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger/money"
)

// limitFlags are the gates of a run, and of its preview. Each can be set by
// BILLING_* too; 0 switches a share or factor off.
func limitFlags() []cli.Flag {
	d := billing.DefaultLimits
	shareFlag := func(name, usage string, value float64) cli.Flag {
		return &cli.Float64Flag{Name: name, Usage: usage, Value: value, EnvVars: []string{envOf(name)}, Category: "Gates"}
	}
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "max-total", Usage: "the most that may be charged in a currency, such as usd=120000", EnvVars: []string{envOf("max-total")}, Category: "Gates"},
		&cli.StringSliceFlag{Name: "max-charge", Usage: "the most that a single charge may be in a currency, such as usd=5000", EnvVars: []string{envOf("max-charge")}, Category: "Gates"},
		&cli.Int64Flag{Name: "max-charges", Usage: "the most charges; 0 is no limit", EnvVars: []string{envOf("max-charges")}, Category: "Gates"},
		shareFlag("max-growth", "by what share a currency's total may be more than in the last period", d.MaxGrowth),
		shareFlag("max-drop", "by what share a currency's total may be less", d.MaxDrop),
		shareFlag("max-single", "how many times the last period's largest a single charge may be", d.MaxSingle),
		shareFlag("max-account-growth", "how many times its last amount an account may be charged", d.MaxAccountGrowth),
		shareFlag("max-shifted", "by what share of the accounts those that rose by over a fifth may outnumber those that fell as much", d.MaxShifted),
		shareFlag("max-jumped", "the share of accounts whose amount may double or halve", d.MaxJumped),
		shareFlag("max-new", "the share of accounts that may be new", d.MaxNew),
		shareFlag("max-gone", "the share of accounts that may be gone", d.MaxGone),
		shareFlag("max-skipped", "the share of invoices that may have no card, customer or account", d.MaxSkipped),
		shareFlag("min-count", "the least share of the last period's charges", d.MinCount),
		&cli.StringSliceFlag{Name: "allow-currency", Usage: "a currency that is new", EnvVars: []string{envOf("allow-currency")}, Category: "Gates"},
		&cli.BoolFlag{Name: "allow-same", Usage: "a period that is the last one, account by account", EnvVars: []string{envOf("allow-same")}, Category: "Gates"},
	}
}

func envOf(flag string) string {
	return "BILLING_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// limitsOf reads them.
func limitsOf(c *cli.Context) (l billing.Limits, err error) {
	for _, one := range []struct {
		name string
		to   *float64
	}{
		{"max-growth", &l.MaxGrowth},
		{"max-drop", &l.MaxDrop},
		{"max-single", &l.MaxSingle},
		{"max-account-growth", &l.MaxAccountGrowth},
		{"max-shifted", &l.MaxShifted},
		{"max-jumped", &l.MaxJumped},
		{"max-new", &l.MaxNew},
		{"max-gone", &l.MaxGone},
		{"max-skipped", &l.MaxSkipped},
		{"min-count", &l.MinCount},
	} {
		if *one.to = c.Float64(one.name); !(*one.to >= 0 && *one.to <= 1e6) { // NaN is neither
			return l, usagef("--%s %v: want 0 or more", one.name, *one.to)
		}
	}
	if l.MaxCharges = c.Int64("max-charges"); l.MaxCharges < 0 {
		return l, usagef("--max-charges %d: want 0 or more", l.MaxCharges)
	}
	if l.MaxTotal, err = capsOf(c, "max-total"); err != nil {
		return l, err
	}
	if l.MaxCharge, err = capsOf(c, "max-charge"); err != nil {
		return l, err
	}
	for _, text := range splitCommas(c.StringSlice("allow-currency")) {
		currency, err := money.ParseCurrency(text)
		if err != nil {
			return l, usagef("--allow-currency %q: %v", text, err)
		}
		l.Currencies = append(l.Currencies, currency)
	}
	l.AllowSame = c.Bool("allow-same")
	return l, nil
}

// capsOf reads amounts in major units, such as usd=5000.
func capsOf(c *cli.Context, flag string) (map[money.Currency]int64, error) {
	caps := map[money.Currency]int64{}
	for _, text := range splitCommas(c.StringSlice(flag)) {
		name, amount, there := strings.Cut(text, "=")
		if !there {
			return nil, usagef("--%s %q: want a currency and an amount, such as usd=5000", flag, text)
		}
		currency, err := money.ParseCurrency(name)
		if err != nil {
			return nil, usagef("--%s %q: %v", flag, text, err)
		}
		value, err := money.Parse(amount)
		if err != nil {
			return nil, usagef("--%s %q: %v", flag, text, err)
		}
		minor, err := money.ToMinor(value, currency)
		if err != nil || minor < 0 {
			return nil, usagef("--%s %q: %s is no amount of %s", flag, text, strconv.Quote(amount), currency)
		}
		if _, twice := caps[currency]; twice {
			return nil, usagef("--%s names %s twice", flag, currency)
		}
		caps[currency] = minor
	}
	return caps, nil
}

// splitCommas lets an environment variable name several.
func splitCommas(list []string) (out []string) {
	for _, text := range list {
		for _, one := range strings.Split(text, ",") {
			if one = strings.TrimSpace(one); one != "" {
				out = append(out, one)
			}
		}
	}
	return out
}
