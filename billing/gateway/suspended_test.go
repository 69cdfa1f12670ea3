package gateway

import (
	"testing"
	"time"
)

// While a machine is suspended its monotonic clock stands still and its wall clock goes
// on: a permit ends by the wall clock then, although hardly any time has passed by the
// other.
func TestAPermitEndsWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	start := time.Now()
	deadline := NewDeadline(start, 30*time.Second)
	for suspended, left := range map[time.Duration]time.Duration{
		0: 29 * time.Second, 10 * time.Second: 19 * time.Second, 29 * time.Second: 0, 25 * time.Hour: 0,
	} {
		// One second of work, and then the suspension: Add moves both clocks.
		awake := onlyMonotonic(start.Add(time.Second+suspended), -suspended)
		if awake.Sub(start) != time.Second || awake.Round(0).Sub(start.Round(0)) != time.Second+suspended {
			t.Fatalf("not the reading of a machine that was suspended for %s", suspended)
		}
		if got := deadline.Remaining(awake); got != left || deadline.Expired(awake) != (left == 0) {
			t.Errorf("suspended for %s: the permit is good for %s, want %s", suspended, got, left)
		}
	}
}
