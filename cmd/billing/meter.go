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
}

func (a *app) newMeter() *meter { return &meter{a: a, next: time.Now().Add(logEvery)} }

func (m *meter) show(p billing.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if now.Before(m.next) && (p.Phase == m.phase || !m.a.progress()) {
		return
	}
	if m.a.progress() {
		m.next = now.Add(drawEvery)
		m.draw(p)
		return
	}
	m.next = now.Add(logEvery)
	m.phase = p.Phase
	if !m.a.quiet {
		m.a.log.Info("progress", "phase", p.Phase, "done", p.Done, "total", p.Total)
	}
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
