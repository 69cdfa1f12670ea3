package metering_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// night is one in which clocks are put forward or back.
type night struct {
	zone string
	at   time.Time // of the change
}

var nights = []night{
	{"Europe/Berlin", time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)},
	{"Europe/Berlin", time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)},
	{"America/New_York", time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)},
	{"America/New_York", time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2026, 10, 3, 15, 30, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2026, 4, 4, 15, 0, 0, 0, time.UTC)},
	{"America/St_Johns", time.Date(2010, 11, 7, 2, 31, 0, 0, time.UTC)}, // back from 00:01 to the day before
	{"America/Sao_Paulo", time.Date(2018, 11, 4, 3, 0, 0, 0, time.UTC)}, // no midnight
	{"America/Sao_Paulo", time.Date(2018, 2, 18, 2, 0, 0, 0, time.UTC)}, // midnight comes twice
	{"Asia/Kathmandu", time.Date(2026, 10, 31, 18, 15, 0, 0, time.UTC)},
	{"UTC", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
}

// Whatever writers do, in transactions long and short, and however meters are broken off, rewound
// and run at once: what they say is a plain recount of what they say is counted, and in the end
// of everything that was committed.
func TestDailyUsageIsAPlainRecount(t *testing.T) {
	histories := 1
	if n, err := strconv.Atoi(os.Getenv("BILLING_TEST_HISTORIES")); err == nil {
		histories = n
	}
	seed := uint64(20261101)
	if n, err := strconv.ParseUint(os.Getenv("BILLING_TEST_SEED"), 10, 64); err == nil {
		seed = n
	}
	for _, n := range nights {
		for i := range histories {
			t.Run(fmt.Sprintf("%s %s/%d", n.zone, n.at.Format(time.DateOnly), i), func(t *testing.T) {
				h := newHistory(t, n, rand.New(rand.NewPCG(seed, uint64(i))))
				for range 60 {
					h.step()
				}
				h.finish()
			})
		}
	}
}

// history is a world in which things happen at random.
type history struct {
	*world
	night
	rng   *rand.Rand
	open  []pgx.Tx
	ids   int
	known []event // that were written, committed or not
	month ledger.Period
	done  []string
}

func newHistory(t *testing.T, n night, rng *rand.Rand) *history {
	h := &history{world: newWorld(t, n.zone), night: n, rng: rng}
	zone, err := time.LoadLocation(n.zone)
	if err != nil {
		t.Fatal(err)
	}
	h.month = ledger.PeriodOf(n.at.Add(-time.Hour), zone)
	h.db.SetNow(n.at.Add(30 * time.Hour))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened: %q", h.done)
		}
	})
	return h
}

// event makes one near the night, often a copy of another, sometimes one that can't be counted.
func (h *history) event() event {
	if len(h.known) > 0 && h.rng.IntN(4) == 0 {
		e := h.known[h.rng.IntN(len(h.known))]
		if h.rng.IntN(3) == 0 {
			e.quantity = strconv.Itoa(h.rng.IntN(50)) // a conflict, if it is another, and later ones are copies of it
			h.known = append(h.known, e)
		}
		return e
	}
	h.ids++
	pick := func(list ...string) string { return list[h.rng.IntN(len(list))] }
	e := event{id: fmt.Sprint("e", h.ids), account: pick("acme", "bolt", "core"), metric: pick("calls", "bytes"), quantity: pick("1", "0.5", "0.000000000001", "900719925474099.3")}
	offset := time.Duration(h.rng.Int64N(int64(6*time.Hour))) - 3*time.Hour
	switch h.rng.IntN(12) {
	case 0:
		offset = 0
	case 1:
		offset = -time.Duration(h.rng.IntN(40)) * 24 * time.Hour
	case 2:
		e.quantity = pick("NaN", "-1", "1e18", "0.0000000000001", "-2")
	case 3:
		e.account = "nobody"
	case 4:
		offset = time.Duration(h.rng.IntN(90)) * time.Hour
	case 5:
		offset = -450 * 24 * time.Hour
	}
	if e.at = h.at.Add(offset).Format(time.RFC3339Nano); h.rng.IntN(6) == 0 {
		e.at = ""
	}
	h.known = append(h.known, e)
	return e
}

func (h *history) events() []event {
	list := make([]event, 1+h.rng.IntN(6))
	for i := range list {
		list[i] = h.event()
	}
	return list
}

// step does one thing.
func (h *history) step() {
	h.t.Helper()
	what := h.rng.IntN(14)
	h.done = append(h.done, strconv.Itoa(what))
	switch what {
	case 0, 1, 2, 3:
		h.add(h.db.Pool, h.events()...)
	case 4:
		if len(h.open) < 3 {
			h.open = append(h.open, h.world.open())
		}
	case 5, 6:
		if len(h.open) > 0 {
			h.add(h.open[h.rng.IntN(len(h.open))], h.events()...)
		}
	case 7:
		h.endOne(h.rng.IntN(3) > 0)
	case 8:
		h.count(large(h.rng.IntN(2) == 0))
		h.mustAgree("a meter")
	case 9:
		h.killed(h.rng.IntN(6), large(h.rng.IntN(2) == 0))
	case 10:
		h.twoAtOnce()
	case 11:
		h.count(rewound(h.db.Now().Add(-time.Duration(h.rng.IntN(72)) * time.Hour)))
		h.mustAgree("a rewind")
	case 12:
		h.db.Advance(time.Duration(h.rng.IntN(120)) * time.Minute)
	case 13:
		h.decide()
	}
}

func (h *history) endOne(commit bool) {
	if len(h.open) == 0 {
		return
	}
	i := h.rng.IntN(len(h.open))
	h.end(h.open[i], commit)
	h.open = append(h.open[:i], h.open[i+1:]...)
}

// twoAtOnce runs two meters, of which one may rewind.
func (h *history) twoAtOnce() {
	h.t.Helper()
	var wg sync.WaitGroup
	failed := make(chan error, 2)
	for i := range 2 {
		m := h.meter(large(h.rng.IntN(2) == 0))
		if i == 1 && h.rng.IntN(2) == 0 {
			rewound(time.Time{})(&m)
		}
		wg.Go(func() {
			if _, err := m.Run(context.WithoutCancel(h.t.Context())); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		h.t.Fatalf("two meters at once: %v", err)
	}
	h.mustAgree("two meters")
}

// decide releases what is negative or a conflict, or freezes the month.
func (h *history) decide() {
	h.t.Helper()
	h.count()
	h.mustAgree("before a decision")
	switch h.rng.IntN(4) {
	case 0:
		h.invoice(h.month)
		h.month = h.month.Next()
	case 1:
		h.release(ledger.SetAsideQuery{Reasons: []string{"negative", "ancient"}})
	case 2:
		h.release(ledger.SetAsideQuery{Reasons: []string{"conflict"}})
	case 3:
		h.count(rewound(time.Time{}))
	}
	h.mustAgree("a decision")
}

// finish ends every transaction, and wants all that was committed to be counted.
func (h *history) finish() {
	h.t.Helper()
	for len(h.open) > 0 {
		h.endOne(h.rng.IntN(2) == 0)
	}
	// Another test's transactions may hold this meter back for a moment.
	for done := h.count(); done.Waiting; done = h.count() {
	}
	h.mustAgree("the end")
	mark, err := ledger.ReadWatermark(h.t.Context(), h.db.Pool, ledger.DefaultJob)
	if err != nil {
		h.t.Fatal(err)
	}
	if left := h.lines(`SELECT event_id FROM billing.usage_events WHERE xid >= $1`, mark.XID); len(left) > 0 {
		h.t.Errorf("never counted: %q", left)
	}
	h.count(rewound(time.Time{}))
	h.mustAgree("all of it again")
}
