package main

import (
	"context"
	"testing"

	"github.com/chargeonce/billing/fixtures/pgproxy"
)

// T48: behind a pooler in transaction mode, where the next transaction is in another
// session, two runs at once charge the month once, a third finds it done, the schema
// is brought up to date twice, and no session is left with a lock.
func TestClaimsNeedNoSession(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(60)
	direct := o.env["DATABASE_URL"]
	pooler, err := pgproxy.StartPooler(context.Background(), direct, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooler.Close)
	o.env["DATABASE_URL"] = pooler.URL
	o.must(0, "migrate")
	o.imports(october, list)
	first, second := o.start("run", "--period", october), o.start("run", "--period", october)
	for _, p := range []process{first, second} {
		if r := p.wait(); r.code != 0 {
			t.Errorf("want exit 0 from both\n%s", r)
		}
	}
	o.month(0)
	o.must(0, "reconcile", "--period", october)
	o.must(0, "migrate")
	if n := one[int](o, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
	if o.emu.Posts() != len(list) {
		t.Errorf("%d POSTs for %d charges", o.emu.Posts(), len(list))
	}
	o.mustHaveOneKeyEach(list)
	o.mustBeWhole()
}
