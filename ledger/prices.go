package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PriceList is a list of prices as the ledger keeps it.
type PriceList struct {
	ValidFrom Period
	Currency  string
	// Version counts the imports of this month and currency that said something else.
	Version int
	// Content is JSON; billing/pricing writes and reads it.
	Content string
	// Source is the file's name.
	Source     string
	ImportedBy string
	ImportedAt time.Time
}

const priceListColumns = `p.valid_from, p.currency, p.version, p.content, p.source, p.imported_by, p.imported_at`

const sqlCurrentPrices = `
SELECT DISTINCT ON (p.valid_from, p.currency) ` + priceListColumns + `
FROM billing.price_lists p ORDER BY p.valid_from, p.currency, p.version DESC`

// ReadPrices returns the lists that are valid from some month on, each in its latest
// version, in the order of months and currencies.
func ReadPrices(ctx context.Context, q Querier) ([]PriceList, error) {
	return priceLists(ctx, q, sqlCurrentPrices)
}

const sqlPricesOf = `
SELECT DISTINCT ON (p.currency) ` + priceListColumns + `
FROM billing.price_lists p WHERE p.valid_from <= $1 ORDER BY p.currency, p.valid_from DESC, p.version DESC`

// ReadPricesOf returns the lists of one month: in each currency the latest one that
// is valid by then.
func ReadPricesOf(ctx context.Context, q Querier, period Period) ([]PriceList, error) {
	return priceLists(ctx, q, sqlPricesOf, period)
}

const sqlPriceList = `
SELECT ` + priceListColumns + `
FROM billing.price_lists p WHERE p.valid_from = $1 AND p.currency = $2 AND p.version = $3`

// ReadPriceList returns one version of a list, ErrNotFound if there is none.
func ReadPriceList(ctx context.Context, q Querier, from Period, currency string, version int) (PriceList, error) {
	list, err := priceLists(ctx, q, sqlPriceList, from, currency, version)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("prices of %s from %s, version %d: %w", currency, from, version, ErrNotFound)
	}
	if err != nil {
		return PriceList{}, err
	}
	return list[0], nil
}

func priceLists(ctx context.Context, q Querier, sql string, args ...any) ([]PriceList, error) {
	rows, _ := q.Query(ctx, sql, args...)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[PriceList])
	if err != nil {
		return nil, fmt.Errorf("read price lists: %w", err)
	}
	return list, nil
}

// PriceImport is a file of prices, checked and read.
type PriceImport struct {
	Source, Person string
	Lists          []NewPrices
	// Metrics are those of all lists, with what they are counted in, if that is named.
	Metrics map[string]string
	// Accounts are those that have prices of their own.
	Accounts []string
}

// NewPrices is one list of a file.
type NewPrices struct {
	ValidFrom         Period
	Currency, Content string
}

// ImportedPrices says what an import of prices did.
type ImportedPrices struct {
	// Lists are those of the file, in its order.
	Lists []ImportedList
	// Others are lists that the file does not have. They stay valid.
	Others int64
	// Metrics counts those that were new or changed their unit.
	Metrics int64
	// Known counts events that were set aside for a metric which is known now.
	Known int64
	// Stale are months with invoices that are not charged yet and were made with prices
	// which are not theirs any more.
	Stale []StalePrices
	// NoAccount counts accounts of the file that are not in billing.accounts, and
	// NoAccountIDs names the first five.
	NoAccount    int64
	NoAccountIDs []string
}

// ImportedList is what became of one list of a file: Version 1 is new, and a changed
// one has the next version.
type ImportedList struct {
	ValidFrom Period
	Currency  string
	Version   int
	Changed   bool // new or changed
}

// StalePrices counts invoices of a month that should be made again.
type StalePrices struct {
	Job      Job
	Period   Period
	Invoices int64
}

// PricesFrozenError says that a list would change what charged invoices were made with.
type PricesFrozenError struct {
	// List has the lists concerned, each with the months.
	List []FrozenPrices
}

// FrozenPrices is a list of a file and one month of charges that stand on what it
// would change.
type FrozenPrices struct {
	ValidFrom Period
	Currency  string
	Job       Job
	Period    Period
	Charges   int64
}

func (e *PricesFrozenError) Error() string {
	return fmt.Sprintf("prices of %d charged months would change", len(e.List))
}

// Is makes errors.Is find ErrInvoiceFrozen.
func (e *PricesFrozenError) Is(target error) bool { return target == ErrInvoiceFrozen }

// Two imports at once would take the same version. Readers are not kept waiting.
const sqlLockMetrics = `LOCK TABLE billing.metrics IN SHARE ROW EXCLUSIVE MODE`

// Whoever makes invoices holds the row of its job, and so has either the old prices or
// the new ones.
const sqlLockUsage = `SELECT count(*) FROM (SELECT FROM billing.job_watermarks w ORDER BY w.job FOR UPDATE) locked`

const sqlAddPrices = `
WITH old AS (
    SELECT p.version, p.content FROM billing.price_lists p
    WHERE p.valid_from = @from AND p.currency = @currency ORDER BY p.version DESC LIMIT 1),
added AS (
    INSERT INTO billing.price_lists (valid_from, currency, version, content, sha256, source, imported_by)
    SELECT @from, @currency, coalesce((SELECT o.version FROM old o), 0) + 1, @content, sha256(convert_to(@content, 'UTF8')), @source, @person
    WHERE NOT EXISTS (SELECT FROM old o WHERE o.content = @content)
    RETURNING version)
SELECT coalesce((SELECT a.version FROM added a), (SELECT o.version FROM old o)), EXISTS (SELECT FROM added)`

// A charge stands on the list that was valid for its month, and late usage on the list
// of the month that it is of. A list that adds metrics and leaves all else as it was
// changes nothing that was ever computed, nor do the names of units.
const sqlFrozenPrices = `
WITH listed AS (
    SELECT p.valid_from, p.version, p.content::jsonb - 'metrics' - 'valid_from' AS terms,
        (SELECT coalesce(jsonb_object_agg(m.key, m.value - 'unit'), '{}') FROM jsonb_each(p.content::jsonb -> 'metrics') m) AS metrics
    FROM billing.price_lists p WHERE p.currency = @currency),
target AS (
    SELECT coalesce(l.terms = b.terms AND l.metrics @> b.metrics, false) AS harmless,
        (SELECT min(n.valid_from) FROM listed n WHERE n.valid_from > @from) AS until
    FROM listed l
    LEFT JOIN LATERAL (SELECT o.terms, o.metrics FROM listed o WHERE (o.valid_from, o.version) < (@from, @version)
        ORDER BY o.valid_from DESC, o.version DESC LIMIT 1) b ON true
    WHERE l.valid_from = @from AND l.version = @version)
SELECT @from AS valid_from, @currency AS currency, l.job, l.period, count(DISTINCT l.account_id) AS charges
FROM target t
JOIN billing.invoice_lines l ON l.currency = @currency
    AND CASE l.kind WHEN 'late' THEN l.from_period ELSE l.period END >= @from
    AND (t.until IS NULL OR CASE l.kind WHEN 'late' THEN l.from_period ELSE l.period END < t.until)
JOIN billing.charges c ON c.job = l.job AND c.period = l.period AND c.account_id = l.account_id AND c.state <> 'void'
WHERE NOT t.harmless
GROUP BY l.job, l.period ORDER BY l.job, l.period`

const sqlAddMetrics = `
INSERT INTO billing.metrics AS m (metric, unit)
SELECT n.metric, n.unit FROM unnest(@metrics::text[], @units::text[]) AS n(metric, unit) ORDER BY n.metric
ON CONFLICT ON CONSTRAINT metrics_pkey DO UPDATE SET unit = excluded.unit WHERE excluded.unit <> '' AND m.unit <> excluded.unit`

// ImportPrices adds the lists of a file, and a new version of those that say something
// else than before. A list that charged invoices stand on is never changed: then the
// error is a *PricesFrozenError, and the caller rolls back. A later month's list is
// what changes prices. The same file again changes nothing.
func ImportPrices(ctx context.Context, tx pgx.Tx, req PriceImport) (done ImportedPrices, err error) {
	if _, err := tx.Exec(ctx, sqlLockMetrics); err != nil {
		return done, fmt.Errorf("lock metrics: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlLockUsage); err != nil {
		return done, fmt.Errorf("lock usage: %w", err)
	}
	for _, l := range req.Lists {
		out := ImportedList{ValidFrom: l.ValidFrom, Currency: l.Currency}
		args := pgx.NamedArgs{"from": l.ValidFrom, "currency": l.Currency, "content": l.Content, "source": req.Source, "person": req.Person}
		if err := tx.QueryRow(ctx, sqlAddPrices, args).Scan(&out.Version, &out.Changed); err != nil {
			return done, fmt.Errorf("add prices of %s from %s: %w", l.Currency, l.ValidFrom, err)
		}
		done.Lists = append(done.Lists, out)
	}
	// Only now is it known until when each list is valid.
	if err := refuseFrozenPrices(ctx, tx, done.Lists); err != nil {
		return done, err
	}
	var metrics, units []string
	for metric, unit := range req.Metrics {
		metrics, units = append(metrics, metric), append(units, unit)
	}
	tag, err := tx.Exec(ctx, sqlAddMetrics, pgx.NamedArgs{"metrics": metrics, "units": units})
	if err != nil {
		return done, fmt.Errorf("add metrics: %w", err)
	}
	done.Metrics = tag.RowsAffected()
	return done, afterPrices(ctx, tx, req, &done)
}

func refuseFrozenPrices(ctx context.Context, tx pgx.Tx, lists []ImportedList) error {
	frozen := &PricesFrozenError{}
	for _, l := range lists {
		if !l.Changed {
			continue
		}
		rows, _ := tx.Query(ctx, sqlFrozenPrices, pgx.NamedArgs{"from": l.ValidFrom, "currency": l.Currency, "version": l.Version})
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[FrozenPrices])
		if err != nil {
			return fmt.Errorf("look for charges that stand on the prices of %s: %w", l.ValidFrom, err)
		}
		frozen.List = append(frozen.List, found...)
	}
	if len(frozen.List) > 0 {
		return frozen
	}
	return nil
}

const sqlOtherPrices = `
SELECT count(*) FROM (SELECT DISTINCT p.valid_from, p.currency FROM billing.price_lists p) p
WHERE NOT EXISTS (SELECT FROM unnest(@froms::text[], @currencies::text[]) AS f(valid_from, currency)
    WHERE f.valid_from = p.valid_from AND f.currency = p.currency)`

// Late usage is priced by its own month's list; where that month is charged, by the version that it
// was charged with.
const sqlStalePrices = `
SELECT l.job, l.period, count(DISTINCT l.account_id) AS invoices
FROM billing.invoice_lines l
LEFT JOIN billing.charges c ON c.job = l.job AND c.period = l.period AND c.account_id = l.account_id AND c.state <> 'void'
WHERE c.account_id IS NULL AND (l.list_from, l.list_version) <> (
    SELECT p.valid_from, p.version FROM billing.price_lists p
    WHERE p.currency = l.currency AND p.valid_from <= CASE l.kind WHEN 'late' THEN l.from_period ELSE l.period END
    ORDER BY p.valid_from DESC, p.version DESC LIMIT 1)
  AND NOT EXISTS (SELECT FROM billing.invoice_lines f
    JOIN billing.charges d ON d.job = f.job AND d.period = f.period AND d.account_id = f.account_id AND d.state <> 'void'
    WHERE l.kind = 'late' AND f.job = l.job AND f.period = l.from_period AND f.account_id = l.account_id AND f.kind <> 'late'
      AND (f.currency, f.list_from, f.list_version) = (l.currency, l.list_from, l.list_version))
GROUP BY l.job, l.period ORDER BY l.job, l.period`

const sqlNowKnown = `
SELECT count(*) FROM billing.usage_set_aside s
JOIN billing.usage_events e ON e.arrival = s.arrival
JOIN billing.metrics m ON m.metric = e.metric
WHERE s.decided IS NULL AND s.reason = 'unknown_metric'`

const sqlPricedWithoutAccount = `
SELECT count(*), coalesce((array_agg(n.id ORDER BY n.id))[1:5], '{}')
FROM unnest($1::text[]) AS n(id) WHERE NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = n.id)`

// afterPrices looks at what a person should know after an import.
func afterPrices(ctx context.Context, tx pgx.Tx, req PriceImport, done *ImportedPrices) error {
	var froms, currencies []string
	for _, l := range req.Lists {
		froms, currencies = append(froms, string(l.ValidFrom)), append(currencies, l.Currency)
	}
	err := tx.QueryRow(ctx, sqlOtherPrices, pgx.NamedArgs{"froms": froms, "currencies": currencies}).Scan(&done.Others)
	rows, queryErr := tx.Query(ctx, sqlStalePrices)
	if queryErr == nil {
		done.Stale, queryErr = pgx.CollectRows(rows, pgx.RowToStructByName[StalePrices])
	}
	err = errors.Join(err, queryErr, tx.QueryRow(ctx, sqlNowKnown).Scan(&done.Known),
		tx.QueryRow(ctx, sqlPricedWithoutAccount, req.Accounts).Scan(&done.NoAccount, &done.NoAccountIDs))
	if err != nil {
		return fmt.Errorf("look at what the prices change: %w", err)
	}
	return nil
}
