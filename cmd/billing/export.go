package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile/export"
)

// exportFile is a file that an export writes.
type exportFile struct {
	table export.Table
	noun  [2]string
	body  func(ctx context.Context, e *exporting, tx pgx.Tx, to export.Encoder) (export.Content, error)
}

// exporting is one export under way.
type exporting struct {
	a        *app
	c        *cli.Context
	out      *result
	job      ledger.Job
	period   ledger.Period
	what     string // of which the manifest is
	format   string
	output   string
	chart    export.Chart
	set      *export.Set // nil for a single file
	files    []exportFile
	meter    *meter
	contents []export.Content
}

// exportJSON is what an export adds to --json.
type exportJSON struct {
	Output   string        `json:"output"`
	Format   string        `json:"format"`
	Rows     int64         `json:"rows"`
	Files    []export.File `json:"files,omitempty"`
	Manifest string        `json:"manifest,omitempty"`
}

// newExport reads what was asked for. Nothing is read from the ledger before it is
// clear that the result has a place.
func newExport(ctx context.Context, a *app, c *cli.Context, what string, files []exportFile) (*exporting, error) {
	job, period, err := jobAndPeriodOf(c)
	if err != nil {
		return nil, err
	}
	e := &exporting{a: a, c: c, job: job, period: period, what: what, format: c.String("format"), output: c.String("output"), files: files}
	e.out = &result{Job: string(job), Period: string(period)}
	known := slices.Contains(export.Formats, e.format)
	switch {
	case !known && !a.typed("format"):
		// Another format than is set for the host would be written into somebody's file.
		return nil, usagef("BILLING_FORMAT is %q, and an export has %s: type --format csv, or another of them", e.format, strings.Join(export.Formats, ", "))
	case !known:
		return nil, usagef("--format %q: want %s", e.format, strings.Join(export.Formats, ", "))
	case e.output == "":
		return nil, usagef("--output is empty: type the name of a file or a folder, or - for stdout")
	case e.output == "-" && a.json:
		return nil, usagef("--json and the export would both go to stdout: name a file with --output")
	case e.output == "-" && e.format == "xlsx" && a.outTTY:
		return nil, usagef("a workbook is nothing for a terminal: name a file with --output")
	}
	if e.chart, err = export.ParseChart(c.String("chart")); err != nil {
		return nil, usagef("--chart %w", err)
	}
	if e.set, err = newSet(e.output, c.Bool("by-hash")); err != nil {
		return nil, err
	}
	switch {
	case e.set == nil && len(files) > 1:
		return nil, usagef("--output %s: a %s is %d files: name a folder that is there, or s3://bucket/prefix", e.output, what, len(files))
	case e.set == nil && c.Bool("by-hash"):
		return nil, usagef("--by-hash names files, so --output must be a folder that is there, or s3://bucket/prefix")
	}
	return e, nil
}

// newSet finds out whether the output is a folder or a bucket; nil for a file.
func newSet(output string, byHash bool) (*export.Set, error) {
	if export.IsBucket(output) {
		name, prefix, err := export.ParseBucket(output)
		if err != nil {
			return nil, usagef("--output %w", err)
		}
		cfg := export.S3Config{
			Endpoint: firstOf("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), Region: firstOf("AWS_REGION", "AWS_DEFAULT_REGION"), Scratch: os.TempDir(),
		}
		bucket, err := export.OpenBucket(cfg, name, prefix)
		if errors.Is(err, export.ErrBadAddress) {
			return nil, configError{err, "set AWS_ENDPOINT_URL_S3 to a URL such as https://s3.example.com, or unset it for Amazon's"}
		}
		if err != nil {
			return nil, err
		}
		return bucket.NewSet(byHash), nil
	}
	if info, err := os.Stat(output); strings.HasSuffix(output, string(os.PathSeparator)) || err == nil && info.IsDir() {
		return export.NewFolderSet(output, byHash), export.CheckFolder(output)
	}
	return nil, nil
}

func firstOf(names ...string) string {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	return ""
}

// fileName names a file by the period, and by the job if it is not the usual one.
func (e *exporting) fileName(what, extension string) string {
	name := what + "-" + string(e.period)
	if e.job != ledger.DefaultJob {
		name += "-" + string(e.job)
	}
	return name + "." + extension
}

// do writes everything from one snapshot of the ledger, and then shows it.
func (e *exporting) do(ctx context.Context) (*result, error) {
	pool, err := openLedger(ctx, e.c)
	if err != nil {
		return e.out, err
	}
	defer pool.Close()
	e.meter = e.a.newMeter()
	manifest := export.Manifest{Export: e.what, Job: string(e.job), Period: string(e.period)}
	err = ledger.InReadTx(ctx, pool, func(tx pgx.Tx) (err error) {
		// A typed-in wrong month would replace a good file by an empty one.
		switch known, err := ledger.KnowsPeriod(ctx, tx, e.job, e.period); {
		case err != nil:
			return err
		case !known:
			return usagef("the ledger knows nothing of %s of %s; see: billing status --job %s", e.period, e.job, e.job)
		}
		if manifest.RunID, err = ledger.LastRunID(ctx, tx, e.job, e.period); err != nil {
			return err
		}
		for _, f := range e.files {
			if err := e.write(ctx, tx, f); err != nil {
				return err
			}
		}
		return nil
	})
	details := exportJSON{Output: e.output, Format: e.format}
	if err == nil && e.set != nil {
		var shown export.File
		shown, err = e.set.Publish(ctx, e.fileName(e.what, e.format+".manifest.json"), manifest)
		details.Files, details.Manifest = e.set.Files(), shown.Name
	}
	e.meter.close()
	if e.set != nil {
		err = errors.Join(err, e.set.Discard())
	}
	for _, content := range e.contents {
		details.Rows += content.Rows
	}
	e.out.Details = details
	if err != nil {
		return e.out, err
	}
	return e.out, e.say()
}

// write writes one of the files.
func (e *exporting) write(ctx context.Context, tx pgx.Tx, f exportFile) error {
	body := func(w io.Writer) (content export.Content, err error) {
		to, err := export.NewEncoder(e.format, w, f.table)
		if err != nil {
			return content, err
		}
		if content, err = f.body(ctx, e, tx, to); err != nil {
			return content, err
		}
		e.contents = append(e.contents, content)
		return content, to.Flush()
	}
	if e.set != nil {
		return e.set.Add(e.fileName(f.table.Name, e.format), body)
	}
	return e.a.writeOutput(e.output, func(w io.Writer) error {
		_, err := body(w)
		return err
	})
}

// say tells people what was written.
func (e *exporting) say() error {
	var text strings.Builder
	for i, f := range e.files {
		rows := e.contents[i].Rows
		if rows == 0 {
			e.a.warn(e.out, "%s of %s has no %s; see: billing status --period %s", e.period, e.job, f.noun[1], e.period)
		}
		name := e.output
		if e.set != nil {
			name = e.set.Show(e.set.Files()[i].Name)
		}
		fmt.Fprintf(&text, "%s: %s of %s\n", name, plural(rows, f.noun[0], f.noun[1]), e.period)
	}
	if e.output == "-" {
		return nil
	}
	return e.a.emit(text.String())
}

// meterRows is how many rows are written between two looks at the clock.
const meterRows = 4096

// progress counts a row.
func (e *exporting) progress(what string, rows int64) {
	if rows%meterRows == 0 {
		e.meter.show(billing.Progress{Phase: "write " + what, Done: rows})
	}
}

func writeCharges(ctx context.Context, e *exporting, tx pgx.Tx, to export.Encoder) (content export.Content, err error) {
	sums := export.NewSummer(export.Charges, "currency", "amount")
	err = ledger.EachChargeRow(ctx, tx, e.job, e.period, func(row ledger.Cells) error {
		content.Rows++
		e.progress("charges", content.Rows)
		sums.Add(row)
		return to.Write(row)
	})
	content.Sums = sums.Amounts()
	return content, err
}

func writeEvents(ctx context.Context, e *exporting, tx pgx.Tx, to export.Encoder) (content export.Content, err error) {
	err = ledger.EachEventRow(ctx, tx, e.job, e.period, func(row ledger.Cells) error {
		content.Rows++
		e.progress("events", content.Rows)
		return to.Write(row)
	})
	return content, err
}
