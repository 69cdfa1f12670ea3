package ledger_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// The moves that the program knows, that the database allows and that the
// documentation shows are the same.
func TestTransitionsAreTheSameInGoInPostgresAndInTheChart(t *testing.T) {
	t.Parallel()
	var want []string
	for _, tr := range ledger.Transitions {
		want = append(want, string(tr.From)+">"+string(tr.To))
	}
	slices.Sort(want)

	var check string
	err := testdb.New(t).Pool.QueryRow(context.Background(),
		`SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'charge_events_move_check'`).Scan(&check)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, found(`([a-z_]+>[a-z_]+)`, check)); diff != "" {
		t.Errorf("charge_events_move_check differs from ledger.Transitions (-Go +Postgres):\n%s", diff)
	}

	chart, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	var drawn []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(chart), -1) {
		drawn = append(drawn, m[1]+">"+m[2])
	}
	slices.Sort(drawn)
	if diff := cmp.Diff(want, drawn); diff != "" {
		t.Errorf("docs/states.md differs from ledger.Transitions (-Go +docs):\n%s", diff)
	}
}

// Every state that Go names is one that the database takes, and no other.
func TestStatesAreTheSameInGoAndInPostgres(t *testing.T) {
	t.Parallel()
	var check string
	err := testdb.New(t).Pool.QueryRow(context.Background(),
		`SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'charges_state_check'`).Scan(&check)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, s := range ledger.ChargeStates {
		want = append(want, string(s))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, found(`'([a-z_]+)'`, check)); diff != "" {
		t.Errorf("charges_state_check differs from ledger.ChargeStates (-Go +Postgres):\n%s", diff)
	}
}

func found(pattern, text string) []string {
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(strings.ReplaceAll(text, "::text", ""), -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}
