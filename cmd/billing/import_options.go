package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger/sheet"
)

// csvFlags say what a file is and how it is written. A flag of urfave/cli remembers
// what it was given: each command has its own.
func csvFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "file", Usage: "the CSV file, or - for stdin", EnvVars: []string{"BILLING_FILE"}},
		&cli.StringFlag{Name: "encoding", Usage: "utf-8, utf-16 or windows-1252", DefaultText: "found in the file"},
		&cli.StringFlag{Name: "delimiter", Usage: "comma, semicolon, tab or bar", DefaultText: "found in the file"},
		&cli.IntFlag{Name: "header-line", Usage: "the line of the header", DefaultText: "found in the file"},
		&cli.StringSliceFlag{Name: "column", Usage: `NAME=TITLE: which title means a column, such as amount="Line total"; may be given again`},
		&cli.BoolFlag{Name: "skip-unknown", Usage: "leave out columns that are not known"},
	}
}

var columnAndTitle = regexp.MustCompile(`^([a-z_]+)=(.+)$`)

// sheetOptions reads what a person says about a file.
func sheetOptions(c *cli.Context, kind sheet.Kind) (opts sheet.Options, err error) {
	opts = sheet.Options{
		Encoding: strings.ToLower(c.String("encoding")), Dates: strings.ToLower(c.String("dates")), HeaderLine: c.Int("header-line"),
		SkipUnknown: c.Bool("skip-unknown"), KeepTotals: c.Bool("keep-totals"), Columns: map[string]string{}, Defaults: map[string]string{},
	}
	if !slices.Contains([]string{"", sheet.EncodingUTF8, sheet.EncodingUTF16, sheet.EncodingWindows}, opts.Encoding) {
		return opts, usagef("--encoding %q: want utf-8, utf-16 or windows-1252", c.String("encoding"))
	}
	if text := c.String("delimiter"); text != "" {
		if opts.Delimiter, err = sheet.ParseDelimiter(text); err != nil {
			return opts, usagef("--delimiter %q: %w", text, err)
		}
	}
	switch text := c.String("decimal"); text {
	case "":
	case "point", ".":
		opts.Decimal = '.'
	case "comma", ",":
		opts.Decimal = ','
	default:
		return opts, usagef("--decimal %q: want point or comma", text)
	}
	if !slices.Contains([]string{"", sheet.DatesDayFirst, sheet.DatesMonthFirst}, opts.Dates) {
		return opts, usagef("--dates %q: want dmy or mdy", c.String("dates"))
	}
	if opts.HeaderLine < 0 {
		return opts, usagef("--header-line %d: want the number of a line, from 1", opts.HeaderLine)
	}
	if text := c.String("currency"); text != "" {
		if !currencyCode.MatchString(text) {
			return opts, usagef("--currency %q: want a three-letter code, such as usd", text)
		}
		opts.Defaults["currency"] = text
	}
	for _, text := range c.StringSlice("column") {
		m := columnAndTitle.FindStringSubmatch(text)
		if m == nil || !slices.ContainsFunc(kind.Columns, func(c sheet.Column) bool { return c.Name == m[1] }) {
			return opts, usagef("--column %q: want NAME=TITLE, where NAME is one of %s", text, kind.Names())
		}
		opts.Columns[m[1]] = m[2]
	}
	return opts, nil
}
