package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// RequestDead is how long after a window, or after a send, no request may be
	// on its way any more.
	RequestDead = 15 * time.Minute
	// DefaultAbsentAfter is how long after a send without an answer a charge that
	// Stripe does not show may be renewed by the program: the longest that Stripe
	// may take to complete by itself what failed.
	DefaultAbsentAfter = 72 * time.Hour
)

// OpenCharge is a charge about which only Stripe can tell more.
type OpenCharge struct {
	AccountID      string
	BillingKey     string
	State          ChargeState
	Reason         string
	Try            int
	Amount         string // major units, as invoiced
	Currency       string
	AmountMinor    int64 // in minor units; 0 if it was never a request
	StripeAccount  string
	StripeCustomer string
	PaymentIntent  string
	// WindowOpenedAt is nil if it was never a request.
	WindowOpenedAt *time.Time
	Sends          int
	OpenSends      int
	ServerErrors   int
	Renewals       int
	LastSentAt     *time.Time
	SettledAt      *time.Time
	// Leased says that somebody may send it right now.
	Leased bool
}

// WindowDead reports whether at a moment no request of the current try can be on
// its way any more, because its window has been over for long enough.
func (c *OpenCharge) WindowDead(at time.Time) bool {
	return c.WindowOpenedAt != nil && !c.Leased && !c.WindowOpenedAt.Add(Window+RequestDead).After(at)
}

// SendsDead reports whether at a moment no send can be on its way any more.
func (c *OpenCharge) SendsDead(at time.Time) bool {
	return !c.Leased && (c.LastSentAt == nil || !c.LastSentAt.Add(RequestDead).After(at))
}

const openColumns = `
    c.account_id, c.billing_key, c.state, c.reason, c.try, c.amount::text AS amount, c.currency, coalesce(c.amount_minor, 0) AS amount_minor,
    c.stripe_account, c.stripe_customer, coalesce(c.payment_intent, '') AS payment_intent, c.window_opened_at, c.sends, c.open_sends,
    c.server_errors, c.renewals, c.last_sent_at, c.settled_at, coalesce(c.lease_until > clock.t, false) AS leased`

// The order is that of the queue's index, so that a page costs what it holds.
const sqlOpenPending = `
SELECT` + openColumns + `
FROM billing.charges c, (SELECT billing.now() AS t OFFSET 0) clock
WHERE c.job = @job AND c.period = @period AND c.state = 'pending' AND c.stripe_account = @stripe_account
  AND (c.window_opened_at + @window::interval <= clock.t OR (@inside AND c.sends > 0))
  AND (c.sends, c.account_id) > (@sends, @after)
ORDER BY c.sends, c.account_id LIMIT @rows`

const sqlOpenUnsettled = `
SELECT` + openColumns + `
FROM billing.charges c, (SELECT billing.now() AS t OFFSET 0) clock
WHERE c.job = @job AND c.period = @period AND c.state IN ('processing', 'action_required') AND c.stripe_account = @stripe_account
  AND c.account_id > @after
ORDER BY c.account_id LIMIT @rows`

const sqlOpenInState = `
SELECT` + openColumns + `
FROM billing.charges c, (SELECT billing.now() AS t OFFSET 0) clock
WHERE c.job = @job AND c.period = @period AND c.state = ANY (@states) AND c.stripe_account = @stripe_account
  AND c.account_id > @after
  AND (c.account_id = ANY (@accounts) OR @accounts::text[] IS NULL AND (c.state <> 'skipped' OR c.reason = ANY (@mendable)))
ORDER BY c.account_id LIMIT @rows`

// OpenQuery asks for a page of open charges of one Stripe account.
type OpenQuery struct {
	Job           Job
	Period        Period
	StripeAccount string
	// Pending asks for pending charges past their window, and with Inside also
	// for those inside it that were sent. Unsettled asks for processing and
	// action_required. Else States asks, within Accounts if there are any: without,
	// only for those skipped ones whose reason can mend.
	Pending, Inside, Unsettled bool
	States                     []ChargeState
	Accounts                   []string
	// After is the last charge of the page before.
	After *OpenCharge
	Rows  int
}

// ReadOpen reads a page of open charges. Read on with After until a page is empty.
func ReadOpen(ctx context.Context, q Querier, o OpenQuery) ([]OpenCharge, error) {
	after, sends := "", -1
	if o.After != nil {
		after, sends = o.After.AccountID, o.After.Sends
	}
	sql := sqlOpenInState
	switch {
	case o.Pending:
		sql = sqlOpenPending
	case o.Unsettled:
		sql = sqlOpenUnsettled
	}
	states := make([]string, len(o.States))
	for i, s := range o.States {
		states[i] = string(s)
	}
	rows, _ := q.Query(ctx, sql, pgx.NamedArgs{
		"job": o.Job, "period": o.Period, "stripe_account": o.StripeAccount, "window": Window, "inside": o.Inside,
		"states": states, "accounts": o.Accounts, "mendable": MendableReasons, "after": after, "sends": sends, "rows": o.Rows,
	})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[OpenCharge])
	if err != nil {
		return nil, fmt.Errorf("read the open charges of %s: %w", o.Period, err)
	}
	return list, nil
}

// One key after the other: a page's keys are few, and a table without statistics
// would be read whole for them.
const sqlOpenByKeys = `
SELECT found.*
FROM (SELECT billing.now() AS t OFFSET 0) clock, unnest(@keys::text[]) k,
    LATERAL (SELECT` + openColumns + ` FROM billing.charges c WHERE c.billing_key = k OFFSET 0) found`

// ReadByKeys reads the charges that have one of the billing keys.
func ReadByKeys(ctx context.Context, q Querier, keys []string) (map[string]OpenCharge, error) {
	rows, _ := q.Query(ctx, sqlOpenByKeys, pgx.NamedArgs{"keys": keys})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[OpenCharge])
	if err != nil {
		return nil, fmt.Errorf("look up billing keys: %w", err)
	}
	found := make(map[string]OpenCharge, len(list))
	for _, c := range list {
		found[c.BillingKey] = c
	}
	return found, nil
}

// OpenCount says how much there is to look up at one Stripe account.
type OpenCount struct {
	StripeAccount string
	// Past charges are pending past their window; Inside ones are inside it and
	// were sent; Unsettled ones are processing or action_required.
	Past, Inside, Unsettled int64
}

const sqlCountOpen = `
SELECT stripe_account, count(*) FILTER (WHERE past) AS past, count(*) FILTER (WHERE inside) AS inside,
    count(*) FILTER (WHERE unsettled) AS unsettled
FROM (
    SELECT c.stripe_account, c.window_opened_at + $3::interval <= clock.t AS past,
        c.window_opened_at + $3::interval > clock.t AND c.sends > 0 AS inside, false AS unsettled
    FROM billing.charges c, (SELECT billing.now() AS t OFFSET 0) clock
    WHERE c.job = $1 AND c.period = $2 AND c.state = 'pending'
    UNION ALL
    SELECT c.stripe_account, false, false, true
    FROM billing.charges c
    WHERE c.job = $1 AND c.period = $2 AND c.state IN ('processing', 'action_required')) open_charges
GROUP BY stripe_account ORDER BY stripe_account`

// CountOpen counts what is open in a period, by Stripe account.
func CountOpen(ctx context.Context, q Querier, job Job, period Period) ([]OpenCount, error) {
	rows, _ := q.Query(ctx, sqlCountOpen, job, period, Window)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[OpenCount])
	if err != nil {
		return nil, fmt.Errorf("count the open charges of %s: %w", period, err)
	}
	return list, nil
}

const sqlCountInState = `
SELECT c.stripe_account, count(*) AS past, 0::bigint AS inside, 0::bigint AS unsettled
FROM billing.charges c
WHERE c.job = $1 AND c.period = $2 AND c.state = ANY ($3)
  AND (c.account_id = ANY ($4) OR $4::text[] IS NULL AND (c.state <> 'skipped' OR c.reason = ANY ($5)))
GROUP BY c.stripe_account ORDER BY c.stripe_account`

// CountInState counts the charges in some states, of some accounts if any are
// named (else without those skipped ones whose reason can't mend), by Stripe
// account; the counts are in Past.
func CountInState(ctx context.Context, q Querier, job Job, period Period, states []ChargeState, accounts []string) ([]OpenCount, error) {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	rows, _ := q.Query(ctx, sqlCountInState, job, period, names, accounts, MendableReasons)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[OpenCount])
	if err != nil {
		return nil, fmt.Errorf("count charges of %s: %w", period, err)
	}
	return list, nil
}

const sqlOpenPeriods = `
SELECT r.period FROM billing.job_runs r
WHERE r.job = $1 AND (
    EXISTS (SELECT FROM billing.charges c WHERE c.job = r.job AND c.period = r.period AND c.state = 'pending')
    OR EXISTS (SELECT FROM billing.charges c WHERE c.job = r.job AND c.period = r.period AND c.state IN ('processing', 'action_required')))
ORDER BY r.period`

// OpenPeriods names the periods that have pending, processing or action_required
// charges, the earliest first.
func OpenPeriods(ctx context.Context, q Querier, job Job) ([]Period, error) {
	rows, _ := q.Query(ctx, sqlOpenPeriods, job)
	list, err := pgx.CollectRows(rows, pgx.RowTo[Period])
	if err != nil {
		return nil, fmt.Errorf("look for open periods: %w", err)
	}
	return list, nil
}

const sqlUnfinishedPeriods = `
SELECT r.period FROM billing.job_runs r
WHERE r.job = $1 AND (
    EXISTS (SELECT FROM billing.charges c WHERE c.job = r.job AND c.period = r.period AND c.state = 'pending')
    OR EXISTS (SELECT FROM billing.charges c WHERE c.job = r.job AND c.period = r.period
        AND c.state IN ('processing', 'action_required', 'held', 'review', 'rejected'))
    OR EXISTS (SELECT FROM billing.findings f WHERE f.job = r.job AND f.period = r.period AND f.severity = 'act' AND f.resolved_at IS NULL))
ORDER BY r.period`

// UnfinishedPeriods names the open periods, and those in which something needs a
// person: a look at all of them ends as it did the time before.
func UnfinishedPeriods(ctx context.Context, q Querier, job Job) ([]Period, error) {
	rows, _ := q.Query(ctx, sqlUnfinishedPeriods, job)
	list, err := pgx.CollectRows(rows, pgx.RowTo[Period])
	if err != nil {
		return nil, fmt.Errorf("look for unfinished periods: %w", err)
	}
	return list, nil
}

const sqlHasUnsettled = `
SELECT EXISTS (SELECT FROM billing.charges c WHERE c.job = $1 AND c.state IN ('processing', 'action_required'))`

// HasUnsettled reports whether any period has payments under way, or waiting for
// the customer.
func HasUnsettled(ctx context.Context, q Querier, job Job) (there bool, err error) {
	if err := q.QueryRow(ctx, sqlHasUnsettled, job).Scan(&there); err != nil {
		return false, fmt.Errorf("look for payments under way: %w", err)
	}
	return there, nil
}

const sqlRestoredBefore = `
SELECT min(e.at) FROM billing.charges c
JOIN billing.charge_events e ON (e.job, e.period, e.account_id, e.payment_intent) = (c.job, c.period, c.account_id, c.payment_intent)
WHERE c.job = $1 AND c.period = $2 AND c.sends = 0 AND c.payment_intent IS NOT NULL AND c.try = 1`

// RestoredBefore is when the ledger first learned of a payment, of this period, for a
// charge that was never sent as far as it knows; nil if it knows of none. It was restored
// from a backup before that, and others that it says were never sent may have been.
func RestoredBefore(ctx context.Context, q Querier, job Job, period Period) (at *time.Time, err error) {
	if err := q.QueryRow(ctx, sqlRestoredBefore, job, period).Scan(&at); err != nil {
		return nil, fmt.Errorf("look for payments of unsent charges in %s: %w", period, err)
	}
	return at, nil
}
