package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"

	"github.com/chargeonce/billing/ledger"
)

const (
	// Lease is for how long a sender has what it claimed. A killed one's messages are
	// free again after it.
	Lease = 5 * time.Minute
	// sendSlack is what of the lease must be left when a send begins: the longest that a
	// sender takes, and time to record it.
	sendSlack = 2 * time.Minute
	// turn is how long what is claimed at once waits for the rate, per group in hand.
	turn = time.Minute
	// DefaultGiveUp is how long after its first try a message that failed is given up.
	DefaultGiveUp = 72 * time.Hour
	// DefaultConcurrency is how many messages of a lane are on their way at once.
	DefaultConcurrency = 8
	// maxBatch bounds what is claimed at once.
	maxBatch = 500
	// laneFailures is how often in a row a receiver may fail before it is left alone:
	// fewer may be the messages' own fault.
	laneFailures = 3
	// grace is how long what is under way may go on after an interrupt.
	grace = 10 * time.Second
)

// LaneSender is a lane and what sends its messages.
type LaneSender struct {
	Lane   string
	Sender Sender
	// Endpoint is the URL of a lane of webhooks. It is in no row.
	Endpoint string
	// MailFrom is what the mails come from that were never tried, by SenderText.
	MailFrom string
	// Rate is messages a second, 0 unlimited. Concurrency is messages on their way at
	// once, DefaultConcurrency if 0.
	Rate        float64
	Concurrency int
}

// Options say how to send.
type Options struct {
	// GiveUp is how long after its first try a message that failed is given up.
	GiveUp time.Duration
	// Twice are the kinds that are rather sent twice than never.
	Twice []string
	// Wait is how long to wait for what is due later, 0 for not at all.
	Wait time.Duration
	Log  *slog.Logger
	// Progress is told after each group, from several goroutines at once.
	Progress func(lane string, done ledger.TriesRecorded)
}

// Dispatcher sends what is queued. Any number of processes may do so at once.
type Dispatcher struct {
	pool    *pgxpool.Pool
	options Options
	owner   uuid.UUID
}

// NewDispatcher makes one. GiveUp, Log and Progress have defaults.
func NewDispatcher(pool *pgxpool.Pool, o Options) *Dispatcher {
	if o.GiveUp == 0 {
		o.GiveUp = DefaultGiveUp
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(string, ledger.TriesRecorded) {}
	}
	return &Dispatcher{pool: pool, options: o, owner: uuid.Must(uuid.NewV7())}
}

// LaneReport is what one process did for a lane.
type LaneReport struct {
	ledger.TriesRecorded
	// Refused is why the lane was left: our key or settings. Empty if they are good.
	Refused string
}

// Run sends what is due in each lane, each by itself, so that a receiver that is slow
// or dead keeps nobody else waiting. It returns when nothing is due any more, what was
// done by then with the error if the database fails.
func (d *Dispatcher) Run(ctx context.Context, lanes []LaneSender) (map[string]LaneReport, error) {
	reports := make(map[string]LaneReport, len(lanes))
	errs := make([]error, len(lanes))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, l := range lanes {
		all.Go(func() {
			lane := d.newLane(l)
			errs[i] = lane.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			reports[l.Lane] = lane.report
		})
	}
	all.Wait()
	return reports, errors.Join(errs...)
}

// lane is the work on one lane by one process.
type lane struct {
	d        *Dispatcher
	name     string
	sender   Sender
	endpoint string
	mailFrom string
	limiter  *rate.Limiter
	workers  int
	most     int // claimed at once

	failures atomic.Int64 // of the receiver in a row, in this process
	tooFast  atomic.Bool  // the receiver has said so since the last look
	refused  atomic.Bool
	gone     atomic.Bool

	mu     sync.Mutex // guards what follows
	size   int        // of the next claim
	sick   int        // the lane's failures as the ledger has them
	away   int        // messages that were turned away in a row
	hushes int        // rounds in a row that ended because they were too fast
	report LaneReport
}

func (d *Dispatcher) newLane(l LaneSender) *lane {
	limit := rate.Inf
	if l.Rate > 0 {
		limit = rate.Limit(l.Rate)
	}
	workers, most := l.Concurrency, maxBatch
	if workers <= 0 {
		workers = DefaultConcurrency
	}
	if l.Rate > 0 {
		// What is claimed must have its turn before the lease is nearly over.
		most = int(max(1, min(maxBatch, l.Rate*turn.Seconds())))
	}
	workers = min(workers, most)
	return &lane{d: d, name: l.Lane, sender: l.Sender, endpoint: l.Endpoint, mailFrom: l.MailFrom, limiter: rate.NewLimiter(limit, 1), workers: workers, most: most, size: workers}
}

// run works until nothing is due, or the lane must be left.
func (l *lane) run(ctx context.Context) error {
	until := time.Now().Add(l.d.options.Wait)
	for locked := 0; ; {
		health, err := l.look(ctx)
		switch {
		case err != nil || ctx.Err() != nil:
			return err
		case health.StoppedFor != "" || health.Due == nil || l.refused.Load():
			return nil
		case *health.Due > 0:
			if !l.waits(ctx, *health.Due, until) {
				return nil
			}
			continue
		}
		l.failures.Store(0)
		l.tooFast.Store(false)
		claimed, err := l.drain(ctx)
		switch {
		case err != nil:
			return err
		case claimed:
			locked = 0
		default:
			// It is due, and somebody has its row.
			if locked++; locked > maxLocked || !sleep(ctx, lockedPause) {
				return nil
			}
		}
	}
}

// look ends what is too old to be sent blindly, and reads how the lane is.
func (l *lane) look(ctx context.Context) (h ledger.LaneHealth, err error) {
	err = ledger.InQueueTx(ctx, l.d.pool, func(tx pgx.Tx) error {
		dead, err := ledger.EndUnknown(ctx, tx, l.name, l.d.options.Twice)
		if err != nil {
			return err
		}
		if dead > 0 {
			l.d.options.Log.Warn("messages may have arrived and are too old to be sent again", "lane", l.name, "messages", dead)
		}
		h, err = ledger.ReadLane(ctx, tx, l.name)
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sick = h.Failures; l.sick > 0 {
		l.size = 1 // is it well again?
	}
	return h, err
}

// drain sends groups until nothing is left or the receiver fails. A healthy lane has
// two groups in hand, so that one is on its way while the other is claimed or recorded.
// claimed says whether there was any.
func (l *lane) drain(ctx context.Context) (claimed bool, err error) {
	hands := 2
	if l.sick > 0 || l.workers == 1 {
		hands = 1
	}
	workers := max(1, l.workers/hands)
	errs := make([]error, hands)
	var some atomic.Bool
	var all sync.WaitGroup
	for i := range hands {
		all.Go(func() {
			for more := true; more && errs[i] == nil && ctx.Err() == nil; {
				var n int
				if n, more, errs[i] = l.group(ctx, workers); n > 0 {
					some.Store(true)
				}
			}
		})
	}
	all.Wait()
	if l.tooFast.Load() {
		l.mu.Lock()
		l.hushes++
		l.mu.Unlock()
	}
	return some.Load(), errors.Join(errs...)
}

// group claims, sends and records one group of n. more says that there may be another.
func (l *lane) group(ctx context.Context, workers int) (n int, more bool, err error) {
	l.mu.Lock()
	size := l.size
	l.mu.Unlock()
	began := time.Now()
	var claimed []ledger.QueuedMessage
	err = ledger.InQueueTx(ctx, l.d.pool, func(tx pgx.Tx) (err error) {
		claimed, err = ledger.ClaimMessages(ctx, tx, ledger.MessageClaim{
			Lane: l.name, Owner: l.d.owner, Rows: size, Lease: Lease, Twice: l.d.options.Twice, Sender: l.mailFrom,
		})
		return err
	})
	if err != nil || len(claimed) == 0 {
		return 0, false, err
	}
	tries, rest := l.sendAll(ctx, claimed, workers, began)
	if err := l.record(ctx, tries, rest); err != nil {
		return len(claimed), false, err
	}
	l.resize(len(claimed), size, time.Since(began))
	return len(claimed), !l.mustRest() && !l.refused.Load() && !l.gone.Load(), nil
}

// resize claims more at once where that takes no time, so that a lease is never nearly
// over before a message's turn comes.
func (l *lane) resize(claimed, size int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case claimed == size && took < time.Second:
		l.size = min(l.most, max(l.workers, 2*l.size))
	case took > 5*time.Second:
		l.size = max(1, l.size/2)
	}
}

func (l *lane) mustRest() bool { return l.tooFast.Load() || l.fails() }

// fails reports whether the receiver failed often enough to be left alone; one that did
// before, at once.
func (l *lane) fails() bool {
	n := l.failures.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	return n >= laneFailures || n > 0 && l.sick > 0
}

// sendAll sends a group over some workers. rest is for how long the receiver asked to
// be left alone. Those whose turn did not come while most of the lease was left are given
// back: another may have them by then.
func (l *lane) sendAll(ctx context.Context, list []ledger.QueuedMessage, workers int, began time.Time) (tries []ledger.Try, rest time.Duration) {
	// What is under way may end in peace.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		sleep(sending, grace)
		cancel()
	})
	defer stop()
	tries = make([]ledger.Try, len(list))
	var next, longest atomic.Int64
	var all sync.WaitGroup
	for range min(workers, len(list)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(list); i = int(next.Add(1)) - 1 {
				m := &list[i]
				tries[i] = ledger.Try{ID: m.ID, ClaimedAt: m.ClaimedAt, End: ledger.TryNone}
				if l.mustRest() || l.refused.Load() || l.gone.Load() || l.limiter.Wait(ctx) != nil || spent(began) > Lease-sendSlack {
					continue
				}
				outcome := l.send(sending, m)
				l.judge(&tries[i], m, outcome)
				if after := int64(outcome.RetryAfter); after > longest.Load() {
					longest.Store(after)
				}
			}
		})
	}
	all.Wait()
	return tries, time.Duration(longest.Load())
}

// spent is how long ago that was, by the clock that counts more: one stands still while
// the machine sleeps, the other may be set.
func spent(began time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(began), now.Round(0).Sub(began.Round(0)))
}

func (l *lane) send(ctx context.Context, m *ledger.QueuedMessage) Outcome {
	message := Message{ID: m.ID, DedupeKey: m.DedupeKey, Kind: m.Kind, Destination: m.Destination, Created: m.CreatedAt}
	if m.Channel == ledger.ChannelWebhook {
		message.Destination, message.Body = l.endpoint, []byte(m.Payload)
	} else if err := json.Unmarshal([]byte(m.Payload), &message.Email); err != nil || message.Email == nil || message.Email.sentBy(m.Sender) != nil {
		return Outcome{Verdict: Permanent, Reason: "unreadable_payload"}
	}
	return l.sender.Send(ctx, message)
}

// judge turns an outcome into what is recorded, and counts how the receiver is.
func (l *lane) judge(t *ledger.Try, m *ledger.QueuedMessage, o Outcome) {
	t.Reason, t.Answer, t.ProviderID, t.Wait = o.Reason, o.Answer, o.ProviderID, max(backOff(m.Tries), o.RetryAfter)
	switch o.Verdict {
	case Sent:
		t.End = ledger.TrySent
		l.took()
	case Permanent:
		t.End = ledger.TryRefused
		switch {
		case !o.TurnedAway:
			l.failures.Store(0) // whoever says no to a message is there
		case l.spares():
			t.End = ledger.TryFailed
		}
	case Gone:
		t.End = ledger.TryRefused
		l.gone.Store(true)
	case Stop:
		l.mu.Lock()
		l.report.Refused = o.Reason
		l.mu.Unlock()
		l.refused.Store(true)
	case Temporary:
		t.End = ledger.TryFailed
		if o.TooFast && l.hushed() {
			t.Wait = max(hushRest, o.RetryAfter)
		} else {
			l.failures.Add(1)
		}
	default:
		t.End = ledger.TryUnknown
		l.failures.Add(1)
	}
	if t.End != ledger.TrySent {
		l.d.options.Log.Warn("a message was not delivered", "id", m.ID, "kind", m.Kind, "lane", l.name, "try", m.Tries, "verdict", o.Verdict, "reason", o.Reason)
	}
}
