package ledger

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Reasons of events that are set aside, in the order in which the first that holds counts.
const (
	ReasonRepeat         = "repeat"          // same id and content as any event that arrived before
	ReasonConflict       = "conflict"        // same id, and a content that no event before had
	ReasonNaN            = "nan"             // no number, or an infinite one
	ReasonHuge           = "huge"            // 1e18 and more, or more than 12 decimals
	ReasonNegative       = "negative"        // less than nothing
	ReasonFuture         = "future"          // occurred after it was received
	ReasonAncient        = "ancient"         // occurred long before it was received
	ReasonUnknownAccount = "unknown_account" // not in billing.accounts when it was judged
	ReasonUnknownMetric  = "unknown_metric"  // not in billing.metrics when it was judged
)

// UsageReasons are the reasons that people decide about, in that order.
var UsageReasons = []string{ReasonConflict, ReasonNaN, ReasonHuge, ReasonNegative, ReasonFuture, ReasonAncient, ReasonUnknownAccount, ReasonUnknownMetric}

// usage_ids are hashes of ids that more than one event may have. An event is compared with all
// of its id that arrived before, however they were judged: a content that was there before is
// a repeat, so that releasing a conflict counts it once, however often it was sent.
const sqlStageIDs = `
CREATE TEMPORARY TABLE usage_ids (hash bigint NOT NULL) ON COMMIT DROP`

const sqlStageIDsOfRange = `
INSERT INTO pg_temp.usage_ids (hash)
SELECT DISTINCT hashtextextended(e.event_id, 0) FROM billing.usage_events e WHERE e.xid >= $1 AND e.xid < $2`

const sqlUniqueIDs = `
CREATE UNIQUE INDEX ON pg_temp.usage_ids (hash)`

const sqlSetAsideCopies = `
WITH same AS (
    SELECT e.arrival, e.xid, first_value(e) OVER (PARTITION BY e.event_id ORDER BY e.xid, e.arrival ROWS UNBOUNDED PRECEDING) AS f,
        row_number() OVER (PARTITION BY e.event_id, e.account_id, e.metric, e.quantity, e.occurred_at ORDER BY e.xid, e.arrival) > 1 AS alike
    FROM pg_temp.usage_ids i JOIN billing.usage_events e ON hashtextextended(e.event_id, 0) = i.hash
    WHERE e.xid < @to)
INSERT INTO billing.usage_set_aside (job, arrival, reason, detail, since)
SELECT @job, s.arrival, CASE WHEN s.alike THEN 'repeat' ELSE 'conflict' END,
    CASE WHEN s.alike THEN '' ELSE 'first: ' || concat_ws(', ', (s.f).account_id, (s.f).metric, (s.f).quantity, to_json((s.f).occurred_at AT TIME ZONE 'UTC') #>> '{}') END, clock.t
FROM same s, (SELECT billing.now() AS t) clock
WHERE s.xid >= @from AND s.arrival <> (s.f).arrival
ORDER BY s.arrival
ON CONFLICT ON CONSTRAINT usage_set_aside_pkey DO NOTHING`

// setAsideCopies finds events of the range whose id another event has that arrived
// before, ever.
func (r usageRange) setAsideCopies(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlStageIDs); err != nil {
		return fmt.Errorf("create staging for ids: %w", err)
	}
	ids := r.rows
	if r.large() {
		n, err := r.stageSuspects(ctx, tx)
		if err != nil {
			return err
		}
		ids = n
	} else if _, err := tx.Exec(ctx, sqlStageIDsOfRange, r.from, r.to); err != nil {
		return fmt.Errorf("stage ids: %w", err)
	}
	if ids == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, sqlUniqueIDs); err != nil {
		return fmt.Errorf("index ids: %w", err)
	}
	// By index while the ids are few, else the table once.
	many := ids*50 > r.all && ids >= bulkRows
	if err := scan(ctx, tx, many, !many); err != nil {
		return err
	}
	r.tell("compare copies", 0)
	if _, err := tx.Exec(ctx, sqlSetAsideCopies, pgx.NamedArgs{"from": r.from, "to": r.to, "job": r.Job}); err != nil {
		return fmt.Errorf("set copies aside: %w", err)
	}
	return nil
}

const (
	// sieveRows is how many ids are sieved at once: with eight bits of the sieve for
	// each, about one in fifty is suspected wrongly.
	sieveRows = 64 << 20
	// maxSieve bounds the memory of a sieve, in words of eight bytes.
	maxSieve = 8 << 20
	// maxSuspects bounds the memory for ids that may be there twice; with more, the ids
	// are sieved in smaller parts.
	maxSuspects = 2 << 20
)

const sqlHashes = `
SELECT h.hash FROM (SELECT hashtextextended(e.event_id, 0) AS hash FROM billing.usage_events e WHERE e.xid < $1) h
WHERE h.hash >= $2 AND h.hash <= $3`

// stageSuspects reads the ids of all events, a part of them at a time, and stages those
// that may be there twice. A sieve of fixed size passes the others over; what it lets
// through wrongly is compared for nothing.
func (r usageRange) stageSuspects(ctx context.Context, tx pgx.Tx) (staged int64, err error) {
	if err := scan(ctx, tx, true, false); err != nil {
		return 0, err
	}
	parts := uint64(1)
	for parts*sieveRows < uint64(r.all) {
		parts *= 2
	}
	last := math.MaxUint64 / parts // of the first part, counted from the lowest hash
	for low := uint64(0); ; {
		suspects, err := r.sieve(ctx, tx, low, low+last)
		if err != nil {
			return staged, err
		}
		if len(suspects) > maxSuspects && last > 0 {
			last /= 2
			continue
		}
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "usage_ids"}, []string{"hash"}, pgx.CopyFromSlice(len(suspects), func(i int) ([]any, error) {
			return []any{suspects[i]}, nil
		}))
		if err != nil {
			return staged, fmt.Errorf("stage ids: %w", err)
		}
		staged += n
		if low+last == math.MaxUint64 {
			return staged, nil
		}
		low += last + 1
	}
}

// sieve reads the hashes of a part and returns those that it saw twice, or takes for
// such, each once. It stops when they are too many.
func (r usageRange) sieve(ctx context.Context, tx pgx.Tx, low, high uint64) (suspects []int64, err error) {
	const lowest = uint64(1) << 63 // of an int64, as bits
	rows, err := tx.Query(ctx, sqlHashes, r.to, int64(low^lowest), int64(high^lowest))
	if err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	defer rows.Close()
	s := newSieve(r.all)
	for n := int64(1); rows.Next() && len(suspects) <= maxSuspects; n++ {
		if hash := binary.BigEndian.Uint64(rows.RawValues()[0]); s.seen(hash) {
			suspects = append(suspects, int64(hash))
		}
		if n%65536 == 0 && r.Progress != nil {
			r.Progress("find copies", n, max(n, r.all))
		}
	}
	if len(suspects) <= maxSuspects {
		if rows.Close(); rows.Err() != nil {
			return nil, fmt.Errorf("read ids: %w", rows.Err())
		}
		slices.Sort(suspects)
		suspects = slices.Compact(suspects)
	}
	return suspects, nil
}

// sieve remembers hashes in few bits. It may take one for seen that was not, and never the
// other way round.
type sieve []uint64

func newSieve(rows int64) sieve {
	words := uint64(1024)
	for words < maxSieve && words*4 < uint64(rows) {
		words *= 2
	}
	return make(sieve, words)
}

// seen adds a hash and reports whether it may have been added before. All its bits are of one
// word, so that there is one access to memory.
func (s sieve) seen(hash uint64) bool {
	word := &s[hash&uint64(len(s)-1)]
	mask := uint64(1)<<(hash>>24&63) | 1<<(hash>>30&63) | 1<<(hash>>36&63)
	if *word&mask == mask {
		return true
	}
	*word |= mask
	return false
}
