package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// StateSum is the charges of a period in one state, reason and currency.
type StateSum struct {
	State  ChargeState
	Reason string
	// AdviceCode is what Stripe advises about declined charges, if anything; Reason is
	// then the bank's decline_code.
	AdviceCode  string `json:",omitempty"`
	Currency    string
	Count       int64
	Amount      decimal.Decimal // major units
	AmountMinor int64           // minor units
}

// Summary is where a period stands, summed from rows.
type Summary struct {
	Sums []StateSum
	// Expired counts pending charges past their window: a look at Stripe settles
	// them. Unanswered are those of them with a send whose answer is not known (in a
	// restored ledger all of them), UnansweredSince is when
	// the first of them was sent last, at the latest; AnsweredEnded is when
	// the window of the first of the others ended.
	Expired, Unanswered            int64
	UnansweredSince, AnsweredEnded *time.Time
	// Paused counts pending charges inside their window that somebody paused.
	Paused int64
	// Now is the database's time of this reading.
	Now time.Time
	// NextWindowEnds is when the first pending charge inside its window leaves
	// it.
	NextWindowEnds *time.Time
	// Unrecorded invoices are billable and not in the ledger; Changed ones have
	// another amount or currency than was recorded.
	Unrecorded, Changed int64
	// Duplicates are rows of billable beyond the first of their account.
	Duplicates    int64
	FindingsToAct int64
}

// NextLook is when the first of the charges past their window may be decided by a
// look at Stripe, if one that was sent without an answer must wait for as long as
// absentAfter; nil for at once, or if there are none.
func (s Summary) NextLook(absentAfter time.Duration) *time.Time {
	var next *time.Time
	for since, wait := range map[*time.Time]time.Duration{s.UnansweredSince: absentAfter, s.AnsweredEnded: RequestDead} {
		if since == nil {
			continue
		}
		if at := since.Add(wait); next == nil || at.Before(*next) {
			next = &at
		}
	}
	if next == nil || !next.After(s.Now) {
		return nil
	}
	return next
}

// Count adds up the charges in any of the states.
func (s Summary) Count(states ...ChargeState) (n int64) {
	for _, sum := range s.Sums {
		for _, st := range states {
			if sum.State == st {
				n += sum.Count
			}
		}
	}
	return n
}

// The key set is a checksum over the accounts, to be compared with that of what
// is billable: XOR does not depend on the order, and equal sets of a million
// accounts are told apart from unequal ones at the price of counting them.
const sqlSums = `
SELECT state, '' AS reason, currency, count(*) AS count, coalesce(sum(amount_minor), 0)::bigint AS amount_minor,
       bit_xor(hashtextextended(account_id, 0)) AS key_set
FROM billing.charges WHERE job = $1 AND period = $2
GROUP BY state, currency`

// An amount that is no number, from a company's own view, was skipped for it.
const sqlReasons = `
SELECT state, reason, CASE state WHEN 'declined' THEN advice_code ELSE '' END AS advice_code, currency, count(*) AS count,
       coalesce(sum(amount) FILTER (WHERE amount > '-Infinity' AND amount < 'Infinity'), 0) AS amount,
       coalesce(sum(amount_minor), 0)::bigint AS amount_minor
FROM billing.charges WHERE job = $1 AND period = $2 AND state IN ('action_required', 'declined', 'skipped', 'rejected', 'review', 'held', 'void')
GROUP BY 1, 2, 3, 4`

const sqlWindows = `
SELECT count(*) FILTER (WHERE NOT inside) AS expired, min(ends) FILTER (WHERE inside) AS next_window_ends,
       count(*) FILTER (WHERE NOT inside AND open_sends > 0) AS unanswered,
       min(last_sent_at) FILTER (WHERE NOT inside AND open_sends > 0) AS unanswered_since,
       count(*) FILTER (WHERE NOT inside AND open_sends = 0) AS answered,
       min(ends) FILTER (WHERE NOT inside AND open_sends = 0) AS answered_ended,
       count(*) FILTER (WHERE inside AND paused) AS paused, billing.now()
FROM (SELECT c.window_opened_at + $3::interval AS ends, c.open_sends, c.last_sent_at,
             EXISTS (SELECT FROM billing.pauses p WHERE p.job = c.job AND p.resumed_at IS NULL
                 AND coalesce(p.account_id, '') IN ('', c.account_id)) AS paused,
             c.window_opened_at <= clock.t AND clock.t < c.window_opened_at + $3::interval AS inside
      FROM billing.charges c, (SELECT billing.now() AS t OFFSET 0) clock
      WHERE c.job = $1 AND c.period = $2 AND c.state = 'pending') w`

const sqlBillableKeySet = `
SELECT count(*), bit_xor(hashtextextended(account_id::text, 0)),
       obj_description('billing.billable'::regclass) IS NOT DISTINCT FROM 'shipped ' || md5(pg_get_viewdef('billing.billable'::regclass))
FROM billing.billable WHERE job = $1 AND period = $2`

const sqlCompare = `
SELECT count(*) FILTER (WHERE c.account_id IS NULL) AS unrecorded,
       count(*) FILTER (WHERE c.state <> 'void' AND (c.amount <> b.amount OR lower(c.currency) <> lower(b.currency))) AS changed,
       count(*) - count(DISTINCT b.account_id) AS duplicates
FROM billing.billable b
LEFT JOIN billing.charges c ON c.job = b.job AND c.period = b.period AND c.account_id = b.account_id::text
WHERE b.job = $1 AND b.period = $2`

const sqlActFindings = `
SELECT count(*) FROM billing.findings WHERE job = $1 AND period = $2 AND severity = 'act' AND resolved_at IS NULL`

// keySet is how many accounts there are, and a checksum over them.
type keySet struct{ count, xor int64 }

// sumRow is a StateSum as sqlSums gives it.
type sumRow struct {
	State       ChargeState
	Reason      string
	Currency    string
	Count       int64
	AmountMinor int64
	KeySet      *int64
}

// Summarize reads where a period stands, and compares what is billable with what
// is recorded. It wants a transaction, so that all of it is one moment's.
func Summarize(ctx context.Context, q Querier, job Job, period Period) (s Summary, err error) {
	recorded, err := s.readSums(ctx, q, job, period)
	if err != nil {
		return s, fmt.Errorf("sum the charges of %s: %w", period, err)
	}
	if err := s.readWindows(ctx, q, job, period); err != nil {
		return s, fmt.Errorf("look at the windows of %s: %w", period, err)
	}
	if err := s.compare(ctx, q, job, period, recorded); err != nil {
		return s, fmt.Errorf("compare billable with the charges of %s: %w", period, err)
	}
	if err := q.QueryRow(ctx, sqlActFindings, job, period).Scan(&s.FindingsToAct); err != nil {
		return s, fmt.Errorf("count the findings of %s: %w", period, err)
	}
	return s, nil
}

// readWindows counts what is past its window, and since when it waits.
func (s *Summary) readWindows(ctx context.Context, q Querier, job Job, period Period) error {
	var answered int64
	err := q.QueryRow(ctx, sqlWindows, job, period, Window).Scan(
		&s.Expired, &s.NextWindowEnds, &s.Unanswered, &s.UnansweredSince, &answered, &s.AnsweredEnded, &s.Paused, &s.Now)
	if err != nil || answered == 0 {
		return err
	}
	restored, err := RestoredBefore(ctx, q, job, period)
	if err == nil && restored != nil {
		s.Unanswered += answered
		s.UnansweredSince, s.AnsweredEnded = earlier(s.UnansweredSince, s.AnsweredEnded), nil
	}
	return err
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// readSums fills Sums: states with reasons from their rows, which are few, the
// others from the index alone.
func (s *Summary) readSums(ctx context.Context, q Querier, job Job, period Period) (keySet, error) {
	rows, _ := q.Query(ctx, sqlSums, job, period)
	sums, err := pgx.CollectRows(rows, pgx.RowToStructByName[sumRow])
	if err != nil {
		return keySet{}, err
	}
	var set keySet
	for _, r := range sums {
		set.count += r.Count
		set.xor ^= deref(r.KeySet)
		switch r.State {
		case ChargeActionRequired, ChargeDeclined, ChargeSkipped, ChargeRejected, ChargeReview, ChargeHeld, ChargeVoid:
			continue
		}
		s.Sums = append(s.Sums, StateSum{
			State: r.State, Currency: r.Currency, Count: r.Count, AmountMinor: r.AmountMinor,
			// The amount of a charge that was not skipped is exact in its currency.
			Amount: money.FromMinor(r.AmountMinor, money.Currency(r.Currency)),
		})
	}
	rows, _ = q.Query(ctx, sqlReasons, job, period)
	reasons, err := pgx.CollectRows(rows, pgx.RowToStructByName[StateSum])
	s.Sums = append(s.Sums, reasons...)
	SortSums(s.Sums)
	return set, err
}

// SortSums puts sums into the order in which reports print them.
func SortSums(sums []StateSum) {
	order := func(s ChargeState) int { return slices.Index(ChargeStates, s) }
	slices.SortFunc(sums, func(a, b StateSum) int {
		return cmp.Or(cmp.Compare(order(a.State), order(b.State)), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.AdviceCode, b.AdviceCode), cmp.Compare(a.Currency, b.Currency))
	})
}

// compare counts invoices that are billable but not in the ledger, and those
// whose amount or currency is not what was recorded. Rows are compared one by one
// only if the sets differ, or if the view is a company's own: the amounts of the
// shipped one are frozen with their invoices.
func (s *Summary) compare(ctx context.Context, q Querier, job Job, period Period, recorded keySet) error {
	var billable keySet
	var xor *int64
	var shipped *bool
	if err := q.QueryRow(ctx, sqlBillableKeySet, job, period).Scan(&billable.count, &xor, &shipped); err != nil {
		return err
	}
	billable.xor = deref(xor)
	if recorded.count == 0 {
		s.Unrecorded = billable.count
		return nil
	}
	if billable == recorded && deref(shipped) {
		return nil
	}
	var off string
	if err := q.QueryRow(ctx, sqlNoNestedLoops).Scan(&off); err != nil {
		return err
	}
	return q.QueryRow(ctx, sqlCompare, job, period).Scan(&s.Unrecorded, &s.Changed, &s.Duplicates)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Periods are found by leaping from one to the next in the index: a ledger of
// years has millions of invoices and a few dozen periods.
const sqlEarlierOpen = `
WITH RECURSIVE p(period) AS (
    (SELECT i.period FROM billing.invoices i WHERE i.job = $1 AND i.period < $2 ORDER BY i.period DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT i.period FROM billing.invoices i WHERE i.job = $1 AND i.period < p.period ORDER BY i.period DESC LIMIT 1)
    FROM p WHERE p.period IS NOT NULL)
SELECT p.period FROM p
LEFT JOIN billing.job_runs r ON r.job = $1 AND r.period = p.period
WHERE p.period IS NOT NULL AND r.state IS DISTINCT FROM 'done'
ORDER BY 1 DESC LIMIT 12`

// EarlierOpen names earlier periods that have invoices and no done run, at most
// twelve.
func EarlierOpen(ctx context.Context, q Querier, job Job, period Period) ([]Period, error) {
	rows, _ := q.Query(ctx, sqlEarlierOpen, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowTo[Period])
	if err != nil {
		return nil, fmt.Errorf("look for earlier periods: %w", err)
	}
	return list, nil
}

const sqlHasInvoices = `
SELECT EXISTS (SELECT FROM billing.billable WHERE job = $1 AND period = $2)
    OR EXISTS (SELECT FROM billing.charges WHERE job = $1 AND period = $2)`

// HasInvoices reports whether the period has anything to bill, or had.
func HasInvoices(ctx context.Context, q Querier, job Job, period Period) (there bool, err error) {
	if err := q.QueryRow(ctx, sqlHasInvoices, job, period).Scan(&there); err != nil {
		return false, fmt.Errorf("look for invoices of %s: %w", period, err)
	}
	return there, nil
}
