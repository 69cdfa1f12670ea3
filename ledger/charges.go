package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// Window is how long a try may be sent after its window opened. Stripe
	// keeps an idempotency key for 24 hours at least; the missing hour is the
	// margin for slow requests and clocks.
	Window = 23 * time.Hour
	// RequestLife is the longest that a request may still be on its way. A
	// window starts that long before the look that found nothing.
	RequestLife = 10 * time.Minute
	// PermitLife is how long a claimed row may be sent, never past its window.
	PermitLife = 30 * time.Second
)

// Permit is the right to send one charge once. It was counted as a send and
// committed before it was handed out.
type Permit struct {
	AccountID      string
	BillingKey     string
	Try            int
	IdempotencyKey string
	Body           string
	BodySHA256     []byte
	StripeAccount  string
	StripeCustomer string
	AmountMinor    int64
	Currency       string
	Sends          int // of this try, this one included
	RunSends       int // by this run, this one included
	Renewals       int // of this try
	// LifeMS is for how many milliseconds the permit is valid, counted from
	// before the claim was asked for.
	LifeMS float64
	// ClaimedAt is the database's time of the claim.
	ClaimedAt time.Time
}

// ClaimLimits bounds one claim of rows.
type ClaimLimits struct {
	Rows int
	// SendsPerRun bounds how often one run sends one row.
	SendsPerRun int
	// Permit is how long the rows may be sent, PermitLife at most.
	Permit time.Duration
	// UnderWay are the customers for whom this process has a charge claimed or a
	// send under way, however long: nothing else is sent for them meanwhile.
	UnderWay []StripeCustomer
	// Only are the billing keys that may be claimed; nil is all.
	Only []string
}

// StripeCustomer is a customer at Stripe. Several accounts may share one.
type StripeCustomer struct {
	Account string // a connected account, empty for one's own
	ID      string
}

// text tells customers apart; the ids of Stripe have no blanks.
func (c StripeCustomer) text() string { return c.Account + " " + c.ID }

// The window and the claim are checked here, by the one clock; the transport
// checks the permit once more right before the bytes. FOR SHARE makes a takeover
// wait for this claim, and this claim fail after a takeover. Rows that failed
// before come after those that were never sent. A row that rests after a failure
// does so for the run that saw it; the next run may ask again at once. Customers under way are compared on
// the way along the queue's index. Rows are joined by their billing key alone, which leaves one way to
// find them; see InQueueTx.
const sqlClaimCharges = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
claim AS MATERIALIZED (
    SELECT FROM billing.job_runs r, clock
    WHERE r.job = @job AND r.period = @period AND r.run_id = @run_id AND r.attempt = @attempt
      AND r.state = 'claimed' AND r.deadline_at > clock.t
      AND NOT EXISTS (SELECT FROM billing.pauses p WHERE p.job = r.job AND coalesce(p.account_id, '') = '' AND p.resumed_at IS NULL)
    FOR SHARE OF r),
picked AS MATERIALIZED (
    SELECT c.billing_key FROM billing.charges c, clock
    WHERE EXISTS (SELECT FROM claim)
      AND c.job = @job AND c.period = @period AND c.state = 'pending'
      AND c.window_opened_at <= clock.t AND clock.t < c.window_opened_at + @window::interval
      AND (c.lease_until IS NULL OR c.lease_until <= clock.t)
      AND (c.stripe_account || ' ' || c.stripe_customer) <> ALL (@under_way)
      AND (@only::text[] IS NULL OR c.billing_key = ANY (@only))
      AND NOT EXISTS (SELECT FROM billing.pauses p WHERE p.job = c.job AND coalesce(p.account_id, '') = c.account_id AND p.resumed_at IS NULL)
      AND (c.lease_owner IS DISTINCT FROM @run_id
           OR (c.run_sends < @sends_per_run AND (c.next_send_at IS NULL OR c.next_send_at <= clock.t)))
    ORDER BY c.sends, c.account_id
    LIMIT @rows
    FOR UPDATE OF c SKIP LOCKED)
UPDATE billing.charges c
SET run_sends = CASE WHEN c.lease_owner = @run_id THEN c.run_sends + 1 ELSE 1 END,
    lease_owner = @run_id, lease_until = clock.t + @permit::interval, next_send_at = NULL,
    sends = c.sends + 1, open_sends = c.open_sends + 1, last_sent_at = clock.t
FROM picked p, clock
WHERE c.billing_key = p.billing_key
RETURNING c.account_id, c.billing_key, c.try, c.idempotency_key, c.body, c.body_sha256, c.stripe_account,
    c.stripe_customer, c.amount_minor, c.currency, c.sends, c.run_sends, c.renewals,
    (1000 * extract(epoch FROM least(@permit::interval, c.window_opened_at + @window::interval - clock.t)))::float8 AS life_ms,
    clock.t AS claimed_at`

// ClaimCharges takes pending rows inside their window to be sent, if the run
// still owns the period. It wants a transaction of InQueueTx. No rows and no error also mean that it may not.
func ClaimCharges(ctx context.Context, tx pgx.Tx, run Run, limits ClaimLimits) ([]Permit, error) {
	underWay := make([]string, len(limits.UnderWay))
	for i, c := range limits.UnderWay {
		underWay[i] = c.text()
	}
	rows, _ := tx.Query(ctx, sqlClaimCharges, pgx.NamedArgs{
		"job": run.Job, "period": run.Period, "run_id": run.RunID, "attempt": run.Attempt,
		"window": Window, "permit": min(limits.Permit, PermitLife),
		"rows": limits.Rows, "sends_per_run": limits.SendsPerRun, "under_way": underWay,
		"only": limits.Only,
	})
	permits, err := pgx.CollectRows(rows, pgx.RowToStructByName[Permit])
	if err != nil {
		return nil, fmt.Errorf("claim charges: %w", err)
	}
	slices.SortFunc(permits, func(a, b Permit) int {
		if a.Sends != b.Sends {
			return a.Sends - b.Sends
		}
		return cmp.Compare(a.AccountID, b.AccountID)
	})
	return permits, nil
}

// Queue is what a run still has to send.
type Queue struct {
	// Sendable rows may be claimed now; Waiting ones later: they are leased or
	// wait after a failure.
	Sendable, Waiting int64
	// Exhausted rows were sent as often as one run may.
	Exhausted int64
	// Expired rows are past their window: only the reconciler may touch them.
	Expired int64
	// Paused rows are inside it, and somebody paused them.
	Paused int64
	// NextAt is when the next waiting row may be claimed.
	NextAt *time.Time
	Now    time.Time
}

const sqlHasLeases = `
SELECT EXISTS (SELECT FROM billing.charges c
    WHERE c.job = $1 AND c.period = $2 AND c.state = 'pending' AND c.lease_until > billing.now())`

// HasLeases reports whether any process may send a charge of the period right
// now.
func HasLeases(ctx context.Context, q Querier, job Job, period Period) (there bool, err error) {
	if err := q.QueryRow(ctx, sqlHasLeases, job, period).Scan(&there); err != nil {
		return false, fmt.Errorf("look for leases: %w", err)
	}
	return there, nil
}

// Lease is the right of another process to send for a customer.
type Lease struct {
	Customer StripeCustomer
	Left     time.Duration // from when it was asked, at most PermitLife
}

const sqlLeasesOfOthers = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t)
SELECT c.stripe_account, c.stripe_customer, max(c.lease_until - clock.t)
FROM billing.charges c, clock
WHERE c.job = $1 AND c.period = $2 AND c.state = 'pending' AND c.lease_until > clock.t AND c.lease_owner <> $3
GROUP BY 1, 2`

// LeasesOfOthers reads for whom an earlier owner of the period may still send.
// Once the run has its claim, there are no new ones: the claim of rows looks at
// it. It reads all that is pending.
func LeasesOfOthers(ctx context.Context, q Querier, run Run) ([]Lease, error) {
	rows, _ := q.Query(ctx, sqlLeasesOfOthers, run.Job, run.Period, run.RunID)
	leases, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Lease, err error) {
		err = row.Scan(&l.Customer.Account, &l.Customer.ID, &l.Left)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for leases of an earlier run: %w", err)
	}
	return leases, nil
}

const sqlQueue = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
pending AS (
    SELECT NOT (c.window_opened_at <= clock.t AND clock.t < c.window_opened_at + @window::interval) AS expired,
           c.lease_owner IS NOT DISTINCT FROM @run_id AND c.run_sends >= @sends_per_run AS exhausted,
           greatest(c.lease_until, CASE WHEN c.lease_owner = @run_id THEN c.next_send_at END) AS free_at,
           p.id IS NOT NULL AS paused
    FROM clock, billing.charges c
    LEFT JOIN billing.pauses p ON p.job = c.job AND p.resumed_at IS NULL AND coalesce(p.account_id, '') = c.account_id
    WHERE c.job = @job AND c.period = @period AND c.state = 'pending' AND (@only::text[] IS NULL OR c.billing_key = ANY (@only))),
paused AS (SELECT EXISTS (SELECT FROM billing.pauses p
    WHERE p.job = @job AND coalesce(p.account_id, '') = '' AND p.resumed_at IS NULL) AS job_is),
ready AS (SELECT q.*, (q.paused OR paused.job_is) AS held FROM pending q, paused)
SELECT count(*) FILTER (WHERE NOT expired AND NOT exhausted AND NOT held AND coalesce(free_at <= clock.t, true)) AS sendable,
       count(*) FILTER (WHERE NOT expired AND NOT exhausted AND NOT held AND free_at > clock.t) AS waiting,
       count(*) FILTER (WHERE NOT expired AND exhausted AND NOT held) AS exhausted,
       count(*) FILTER (WHERE expired) AS expired,
       count(*) FILTER (WHERE NOT expired AND held) AS paused,
       min(free_at) FILTER (WHERE NOT expired AND NOT exhausted AND NOT held AND free_at > clock.t) AS next_at,
       max(clock.t) AS now
FROM clock LEFT JOIN ready ON true`

// ReadQueue counts what is pending, as this run sees it; only are the billing keys
// that count, nil for all.
func ReadQueue(ctx context.Context, q Querier, run Run, sendsPerRun int, only []string) (Queue, error) {
	rows, _ := q.Query(ctx, sqlQueue, pgx.NamedArgs{
		"job": run.Job, "period": run.Period, "run_id": run.RunID, "window": Window, "sends_per_run": sendsPerRun, "only": only,
	})
	queue, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Queue])
	if err != nil {
		return queue, fmt.Errorf("count the queue: %w", err)
	}
	return queue, nil
}
