package gateway

import (
	"testing"
	"time"
	"unsafe"
)

// onlyMonotonic moves a reading's monotonic part alone, which no function of
// package time does: it is the third field of time.Time, in nanoseconds.
func onlyMonotonic(t time.Time, d time.Duration) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

// onlyWall is a reading by the wall clock alone, as after a suspension, while
// which the monotonic clock stands still.
func onlyWall(t time.Time, d time.Duration) time.Time { return t.Round(0).Add(d) }

func TestDeadlinePassesByEitherClock(t *testing.T) {
	start := time.Now()
	deadline := NewDeadline(start, 30*time.Second)
	for name, test := range map[string]struct {
		now     time.Time
		expired bool
	}{
		"at the start":                            {start, false},
		"just before":                             {start.Add(30*time.Second - 1), false},
		"at the end":                              {start.Add(30 * time.Second), true},
		"suspended for a day":                     {onlyWall(start, 25*time.Hour), true},
		"wall clock set back, process went on":    {onlyMonotonic(start, 31*time.Second), true},
		"wall clock set back a little":            {onlyWall(start, -time.Second), false},
		"wall clock set back before the start":    {onlyWall(start, -3*time.Second), true},
		"both clocks agree that it is still good": {start.Add(time.Second), false},
	} {
		if got := deadline.Expired(test.now); got != test.expired {
			t.Errorf("%s: expired %t, want %t", name, got, test.expired)
		}
	}
}

func TestZeroDeadlineHasPassed(t *testing.T) {
	if !(Deadline{}).Expired(time.Time{}) || !(Deadline{}).Expired(time.Now()) {
		t.Error("a permit without a deadline may not be sent")
	}
	if now := time.Now(); !NewDeadline(now, 0).Expired(now) || !NewDeadline(now, -time.Second).Expired(now) {
		t.Error("a deadline of no length has passed")
	}
}
