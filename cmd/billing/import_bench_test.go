package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An import is held against what psql's \copy of the same file takes, into a table with
// the columns, the keys, the checks and the size of row of billing.invoices. Its memory does not grow
// with the file. It prints rows a second, the ratio to \copy and the program's peak.
func BenchmarkImport(b *testing.B) {
	for _, rows := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			o := newOffice(b)
			file := filepath.Join(b.TempDir(), "invoices.csv")
			writeInvoices(b, file, rows)
			o.must(0, "import", "accounts", "--file", accountsOf(b, file, rows))
			o.exec(`CREATE TABLE public.bare (LIKE billing.invoices INCLUDING ALL)`)
			o.exec(`ALTER TABLE public.bare ALTER job SET DEFAULT 'monthly-billing', ALTER period SET DEFAULT '2026-10', ALTER source SET DEFAULT 'invoices.csv',
				ALTER content_hash SET DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000'`)
			for b.Loop() {
				bare := o.bareCopy(b, file)
				start := time.Now()
				p := o.start("import", "invoices", "--period", october, "--file", file, "--quiet")
				resident := p.Resident()
				if r := p.wait(); r.code != 0 {
					b.Fatal(r)
				}
				took := time.Since(start)
				b.ReportMetric(float64(rows)/took.Seconds(), "rows/s")
				b.ReportMetric(100*bare.Seconds()/took.Seconds(), "%-of-copy")
				b.ReportMetric(resident, "MiB-peak")
			}
		})
	}
}

func writeInvoices(b *testing.B, path string, rows int) {
	b.Helper()
	writeLines(b, path, "account_id,amount,currency,description,invoice_id\n", rows, func(w *bufio.Writer, i int) {
		fmt.Fprintf(w, "acc_%07d,%d.%02d,usd,\"Subscription, October\",INV-2026-10-%07d\n", i, 10+i%90, i%100, i)
	})
}

func accountsOf(b *testing.B, beside string, rows int) string {
	b.Helper()
	path := filepath.Join(filepath.Dir(beside), "accounts.csv")
	writeLines(b, path, "account_id,stripe_customer,payment_method,currency\n", rows, func(w *bufio.Writer, i int) {
		fmt.Fprintf(w, "acc_%07d,cus_%07d,pm_%07d,usd\n", i, i, i)
	})
	return path
}

func writeLines(b *testing.B, path, header string, rows int, line func(*bufio.Writer, int)) {
	b.Helper()
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(file)
	w.WriteString(header)
	for i := range rows {
		line(w, i)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
}

// bareCopy is what \copy does: the file's bytes, as they are.
func (o *office) bareCopy(b *testing.B, path string) time.Duration {
	b.Helper()
	ctx := context.Background()
	o.exec(`TRUNCATE public.bare`)
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	conn, err := o.db.Pool.Acquire(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	start := time.Now()
	if _, err := conn.Conn().PgConn().CopyFrom(ctx, file, `COPY public.bare (account_id, amount, currency, description, invoice_id) FROM STDIN WITH (FORMAT csv, HEADER)`); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}
