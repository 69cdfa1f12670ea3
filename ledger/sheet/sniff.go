package sheet

import (
	"bytes"
	"encoding/csv"
	"errors"
	"slices"
	"strings"
	"unicode"
)

const (
	// sampleBytes is how much of a file its format is found in.
	sampleBytes = 64 << 10
	// maxTitleRows bounds how far below the beginning the header may stand.
	maxTitleRows = 20
)

// delimiters are what may separate columns, with the words that a person types.
var delimiters = []struct {
	mark rune
	word string
}{{',', "comma"}, {';', "semicolon"}, {'\t', "tab"}, {'|', "bar"}}

// ParseDelimiter reads what a person typed: a word, or the character.
func ParseDelimiter(text string) (rune, error) {
	for _, d := range delimiters {
		if text == d.word || text == string(d.mark) || text == d.word+"s" || d.mark == '\t' && text == `\t` {
			return d.mark, nil
		}
	}
	return 0, errors.New("want comma, semicolon, tab or bar")
}

func delimiterWord(mark rune) string {
	for _, d := range delimiters {
		if d.mark == mark {
			return d.word + "s"
		}
	}
	return string(mark)
}

// layout is where the header of a file is.
type layout struct {
	delimiter rune
	offset    int // bytes in front of the header
	lines     int // lines in front of the header
	matches   int // titles that are known
	cells     []string
}

// sniff finds the delimiter and the header in the beginning of a file: the row, among
// the first twenty, of which most titles are known. Titles tell more than a count of
// commas does: a text may hold any number of them.
func (k Kind) sniff(sample []byte, opts Options) layout {
	sample, marked := cutSep(sample)
	candidates := delimiters
	if opts.Delimiter != 0 || marked.delimiter != 0 {
		mark := opts.Delimiter
		if mark == 0 {
			mark = marked.delimiter
		}
		candidates = slices.DeleteFunc(slices.Clone(delimiters), func(d struct {
			mark rune
			word string
		}) bool {
			return d.mark != mark
		})
	}
	var best layout
	for _, d := range candidates {
		l := k.sniffBy(sample, d.mark, opts)
		l.offset, l.lines = l.offset+marked.offset, l.lines+marked.lines
		if best.delimiter == 0 || l.matches > best.matches || l.matches == best.matches && l.matches == 0 && len(l.cells) > len(best.cells) {
			best = l
		}
	}
	return best
}

// cutSep takes away the line in which Excel is told the delimiter, sep=;
func cutSep(sample []byte) ([]byte, layout) {
	line, rest, found := bytes.Cut(sample, []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	if found && len(line) == 5 && bytes.EqualFold(line[:4], []byte("sep=")) {
		if mark, err := ParseDelimiter(string(line[4:])); err == nil {
			return rest, layout{delimiter: mark, offset: len(sample) - len(rest), lines: 1}
		}
	}
	return sample, layout{}
}

func (k Kind) sniffBy(sample []byte, delimiter rune, opts Options) (best layout) {
	titles := k.titles(opts.Columns)
	r := csv.NewReader(bytes.NewReader(sample))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord = delimiter, true, -1
	found := false
	for range maxTitleRows {
		offset := int(r.InputOffset())
		cells, err := r.Read()
		if err != nil {
			break
		}
		if isBlank(cells) {
			continue
		}
		l := layout{delimiter: delimiter, offset: offset, lines: bytes.Count(sample[:offset], []byte("\n")), cells: cells}
		known := map[string]bool{}
		for _, cell := range cells {
			if name := titles[key(cell)]; name != "" {
				known[name] = true
			}
		}
		l.matches = len(known)
		if k.wrong(cells) != nil {
			l.matches += len(k.Columns)
		}
		line, _ := r.FieldPos(0)
		switch {
		case opts.HeaderLine > 0 && line+opts.skippedLines >= opts.HeaderLine:
			l.matches = max(l.matches, 1)
			return l
		// Two titles at least: a line of words that names one of them is no header.
		case !found, l.matches > best.matches && l.matches > 1:
			best, found = l, true
		}
	}
	if !found {
		best.delimiter = delimiter
	}
	return best
}

func isBlank(cells []string) bool {
	for _, c := range cells {
		if c != "" && strings.IndexFunc(c, func(r rune) bool { return !unicode.IsSpace(r) }) >= 0 {
			return false
		}
	}
	return true
}
