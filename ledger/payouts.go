package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Unpaidout is what of a period is booked at Stripe and in no payout yet, as far as the
// ledger knows, by the account and the currency of the balance.
type Unpaidout struct {
	StripeAccount string
	Currency      string
	Charges       int64
	// From and To are the first and the last day on which the money is available.
	From, To time.Time
}

const sqlNotPaidOut = `
SELECT stripe_account, balance_currency AS currency, count(*) AS charges, min(available_on) AS from, max(available_on) AS to
FROM billing.charges
WHERE job = $1 AND period = $2 AND payout = '' AND payment_intent IS NOT NULL AND available_on <= billing.now()
GROUP BY stripe_account, balance_currency ORDER BY stripe_account, balance_currency`

// NotPaidOut says what a look at the payouts could still find.
func NotPaidOut(ctx context.Context, q Querier, job Job, period Period) ([]Unpaidout, error) {
	rows, _ := q.Query(ctx, sqlNotPaidOut, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Unpaidout])
	if err != nil {
		return nil, fmt.Errorf("count what is not paid out of %s: %w", period, err)
	}
	return list, nil
}

// What is in the payout is written whatever period it is of: it was read already.
const sqlRecordPayout = `
WITH mine AS MATERIALIZED (
    SELECT c.job, c.period, c.account_id FROM unnest($2::text[]) AS paid (intent) JOIN billing.charges c ON c.payment_intent = paid.intent
    WHERE c.payout <> $1 ORDER BY c.payment_intent FOR NO KEY UPDATE OF c),
written AS (
    UPDATE billing.charges c SET payout = $1 FROM mine
    WHERE c.job = mine.job AND c.period = mine.period AND c.account_id = mine.account_id
    RETURNING c.job, c.period)
SELECT count(*) FROM written WHERE job = $3 AND period = $4`

// RecordPayout writes beside charges which payout their money is in, and counts those
// of one period among them.
func RecordPayout(ctx context.Context, tx pgx.Tx, payout string, intents []string, job Job, period Period) (written int64, err error) {
	if err := tx.QueryRow(ctx, sqlRecordPayout, payout, intents, job, period).Scan(&written); err != nil {
		return 0, fmt.Errorf("record payout %s: %w", payout, err)
	}
	return written, nil
}
