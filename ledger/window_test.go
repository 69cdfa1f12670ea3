package ledger_test

import (
	"testing"
	"time"
)

// A window is counted from the look that opened it: sending a charge, once or again,
// makes it no longer.
func TestSendsMakeNoWindowLonger(t *testing.T) {
	w := newImportWorld(t)
	w.pending(w.claim(), "a")
	for _, step := range []struct {
		later time.Duration
		sent  int
	}{{11 * time.Hour, 1}, {11 * time.Hour, 1}, {time.Hour, 0}, {10 * time.Hour, 0}} {
		w.Advance(step.later)
		// The claim of the step before went stale.
		if got := w.permits(w.claim(), oneSend); len(got) != step.sent {
			t.Errorf("%s later: permits %+v, want %d", step.later, got, step.sent)
		}
	}
}
