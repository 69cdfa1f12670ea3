package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/chargeonce/billing/billing"
)

const (
	// logEvery is the pause between two progress lines where no bar is drawn.
	logEvery = 15 * time.Second
	// drawEvery keeps a bar from costing more than the work.
	drawEvery = 100 * time.Millisecond
)

// meter shows progress: a bar on a terminal, a log line now and then elsewhere.
// Its methods may be called from many goroutines.
type meter struct {
	a *app

	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	phase string
	next  time.Time
	// began is when the phase that is measured began, and what was done by then.
	began     time.Time
	measured  string
	beganDone int64
}

func (a *app) newMeter() *meter {
	m := &meter{a: a, next: time.Now().Add(logEvery)}
	a.meter.Store(m)
	return m
}

// logWriter writes log lines above the bar, where there is one.
type logWriter struct{ a *app }

func (w logWriter) Write(p []byte) (int, error) {
	if m := w.a.meter.Load(); m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.bar != nil {
			_ = m.bar.Clear() // it is drawn again with its next step
		}
	}
	return w.a.err.Write(p)
}

func (m *meter) show(p billing.Progress) {
	if m.due(p) {
		// Not under the lock: the log writes above the bar, and takes it.
		m.a.log.Info("progress", append([]any{"phase", p.Phase, "done", p.Done, "total", p.Total}, m.pace(p)...)...)
	}
}

// due draws the bar if there is one, or reports whether a log line is due.
func (m *meter) due(p billing.Progress) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, bar := time.Now(), m.a.progress()
	if m.measured != p.Phase {
		m.began, m.measured, m.beganDone = now, p.Phase, p.Done
	}
	if now.Before(m.next) && (p.Phase == m.phase || !bar) {
		return false
	}
	if bar {
		m.next = now.Add(drawEvery)
		m.draw(p)
		return false
	}
	m.next = now.Add(logEvery)
	return !m.a.quiet
}

// pace is how fast a phase goes and how long it still takes, once that can be said.
func (m *meter) pace(p billing.Progress) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := time.Since(m.began).Seconds()
	if took < 1 || p.Done <= m.beganDone {
		return nil
	}
	rate := float64(p.Done-m.beganDone) / took
	out := []any{"per_second", int64(rate)}
	if p.Total > p.Done {
		out = append(out, "remaining_seconds", int64(float64(p.Total-p.Done)/rate)+1)
	}
	return out
}

func (m *meter) draw(p billing.Progress) {
	if m.bar == nil || m.phase != p.Phase {
		m.clear()
		total := p.Total
		if total == 0 {
			total = -1 // a spinner
		}
		m.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(m.a.err), progressbar.OptionSetDescription(p.Phase),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetElapsedTime(true),
			progressbar.OptionClearOnFinish())
		m.phase = p.Phase
	}
	if p.Total > 0 && m.bar.GetMax64() != p.Total {
		m.bar.ChangeMax64(p.Total)
	}
	_ = m.bar.Set64(p.Done)
}

func (m *meter) clear() {
	if m.bar != nil {
		_ = m.bar.Clear()
		m.bar = nil
	}
}

// close removes what was drawn.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clear()
	if m.a.progress() {
		fmt.Fprint(m.a.err, "\r")
	}
}
