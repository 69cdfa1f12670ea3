package main

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/reconcile/export"
)

// Exporting 1,000,000 charges, against \copy of the same rows and columns into a file,
// which is what psql does with COPY TO STDOUT. BILLING_BENCH_ROWS makes it smaller. The
// program's start, its two looks at the schema and its sync to disk count.
func BenchmarkExport(b *testing.B) {
	n := 1_000_000
	if rows, err := strconv.Atoi(os.Getenv("BILLING_BENCH_ROWS")); err == nil && rows > 0 {
		n = rows
	}
	o := newOffice(b)
	o.hasPaid(n)
	o.exec(`UPDATE billing.charges SET name = 'Customer, number ' || payment_intent, fee_minor = 172, net_minor = 4728, balance_currency = 'usd'`)
	o.exec(`VACUUM ANALYZE billing.charges`)
	bare := o.copies(b) // fills the cache
	for _, format := range export.Formats {
		b.Run(format, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "charges."+format)
			for b.Loop() {
				bare = min(bare, o.copies(b))
				started := time.Now()
				p := o.start("export", "charges", "--period", october, "--format", format, "--output", path)
				b.ReportMetric(p.Resident(), "MiB-peak")
				if r := p.wait(); r.code != 0 {
					b.Fatal(r)
				}
				ours := time.Since(started)
				b.ReportMetric(float64(n)/ours.Seconds(), "rows/s")
				b.ReportMetric(100*bare.Seconds()/ours.Seconds(), "%-of-copy")
			}
		})
	}
}

// copies does what \copy does, and says how long that took.
func (o *office) copies(b *testing.B) time.Duration {
	b.Helper()
	ctx := context.Background()
	conn, err := o.db.Pool.Acquire(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	started := time.Now()
	file, err := os.Create(filepath.Join(b.TempDir(), "copy.csv"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	w := bufio.NewWriterSize(file, 256<<10)
	sql := `COPY (SELECT ` + strings.Join(export.Charges.Names(), ", ") + ` FROM billing.report_charges
		WHERE job = 'monthly-billing' AND period = '2026-10' ORDER BY account_id) TO STDOUT (FORMAT csv, HEADER)`
	if _, err := conn.Conn().PgConn().CopyTo(ctx, w, sql); err != nil {
		b.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	return time.Since(started)
}
