package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sheetCase is a paragraph of fixtures/sheets/expected.txt.
type sheetCase struct {
	file, why, command string
	exit               int
	flags, says        []string
}

var sheetsDir = filepath.Join("..", "..", "fixtures", "sheets")

func readSheetCases(t *testing.T) (list []sheetCase) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sheetsDir, "expected.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if word == "file" {
			list = append(list, sheetCase{file: rest, command: "invoices"})
		}
		if len(list) == 0 || word == "" {
			continue
		}
		c := &list[len(list)-1]
		switch word {
		case "file":
		case "why":
			c.why = rest
		case "command":
			c.command = rest
		case "flags":
			for _, f := range strings.Fields(rest) {
				c.flags = append(c.flags, titled(f))
			}
		case "says":
			c.says = append(c.says, rest)
		case "exit":
			if c.exit, err = strconv.Atoi(rest); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("expected.txt: %q", line)
		}
	}
	return list
}

// titled puts the blanks of a title back, not those of our own names.
func titled(flag string) string {
	name, title, found := strings.Cut(flag, "=")
	if !found {
		return flag
	}
	return name + "=" + strings.ReplaceAll(title, "_", " ")
}

// Every file that a spreadsheet, a bank or another program may give comes in right or
// is refused with what its sender must mend, and a refused one changes nothing. The
// files and what they come to are data, in fixtures/sheets.
func TestNastyFiles(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	cases := readSheetCases(t)
	files := map[string]bool{}
	before := o.everyRow()
	for _, c := range cases {
		files[c.file] = true
		args := []string{"import", c.command, "--file", filepath.Join(sheetsDir, c.file), "--dry-run"}
		if c.command == "invoices" {
			args = append(args, "--period", october)
		}
		r := o.run(append(args, c.flags...)...)
		if r.code != c.exit {
			t.Errorf("%s %v (%s): exit %d, want %d\n%s", c.file, c.flags, c.why, r.code, c.exit, r)
		}
		text := strings.Join(strings.Fields(r.stdout+r.stderr), " ")
		for _, want := range c.says {
			if !strings.Contains(text, strings.Join(strings.Fields(want), " ")) {
				t.Errorf("%s %v (%s): does not say %q\n%s", c.file, c.flags, c.why, want, r)
			}
		}
		if refused := strings.Contains(r.stderr, "nothing was imported"); refused != (c.exit == 65) {
			t.Errorf("%s: says that nothing was imported: %v, exit %d", c.file, refused, r.code)
		}
	}
	if after := o.everyRow(); after != before {
		t.Errorf("files that were refused or tried changed\n%s\ninto\n%s", before, after)
	}
	there, err := os.ReadDir(sheetsDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if !files[f.Name()] && f.Name() != "expected.txt" {
			t.Errorf("%s is in no paragraph of expected.txt", f.Name())
		}
	}
	if len(files) < 60 {
		t.Errorf("only %d files", len(files))
	}
}
