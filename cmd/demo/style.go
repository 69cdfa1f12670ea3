//go:build unix

package main

import (
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
)

// colourFor leaves colours on only where a person reads them. go-pretty itself
// honours NO_COLOR.
func colourFor(out io.Writer) {
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return
		}
	}
	text.DisableColors()
}

func command(s string) string { return text.Bold.Sprint(s) }
func aside(s string) string   { return text.Faint.Sprint(s) }
func good(s string) string    { return text.FgGreen.Sprint(s) }
func bad(s string) string     { return text.Colors{text.FgRed, text.Bold}.Sprint(s) }
