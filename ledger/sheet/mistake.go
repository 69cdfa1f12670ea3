package sheet

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxListed bounds how many mistakes of a file are listed; the rest is counted.
	MaxListed = 20
	// maxShown bounds how much of a value stands in a message, in bytes.
	maxShown = 60
)

// Mistakes are what is wrong with one file: the first twenty, and how many of which
// kind. They are an error once there is one.
type Mistakes struct {
	Name  string   // the file's, as messages show it
	What  string   // of what there are several; empty means mistakes
	List  []string // each names the place, and what to type instead
	Total int
	// Read is how the file was read, if that is worth telling.
	Read string
	// Kinds are the columns and other words that mistakes are counted by, in the
	// order of their first one.
	Kinds []string
	Count map[string]int
	// unlisted counts what is not in List.
	unlisted map[string]int
}

// Add counts a mistake, and lists it if it is among the first.
func (m *Mistakes) Add(kind, format string, args ...any) {
	if m.Count == nil {
		m.Count, m.unlisted = map[string]int{}, map[string]int{}
	}
	if m.Count[kind] == 0 {
		m.Kinds = append(m.Kinds, kind)
	}
	m.Count[kind]++
	if m.Total++; len(m.List) < MaxListed {
		m.List = append(m.List, fmt.Sprintf(format, args...))
	} else {
		m.unlisted[kind]++
	}
}

// Err is nil as long as nothing is wrong.
func (m *Mistakes) Err() error {
	if m.Total == 0 {
		return nil
	}
	return m
}

func (m *Mistakes) Error() string {
	text := strings.Join(m.List, "\n  ")
	if m.Total > 1 {
		text = fmt.Sprintf("%s has %d %s:\n  %s", m.Name, m.Total, cmp.Or(m.What, "mistakes"), text)
	}
	if more := m.Total - len(m.List); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
		var counts []string
		for _, kind := range m.Kinds {
			if n := m.unlisted[kind]; n > 0 {
				counts = append(counts, fmt.Sprintf("%s %d", kind, n))
			}
		}
		if len(counts) > 0 {
			text += " (" + strings.Join(counts, ", ") + ")"
		}
	}
	if m.Read != "" {
		text += "\nit was read as " + m.Read
	}
	return text + "\nnothing was imported"
}

// Show quotes a value for a message, cut if it is long.
func Show(value string) string {
	if len(value) > maxShown {
		cut := maxShown
		for cut > 0 && !utf8.RuneStart(value[cut]) {
			cut--
		}
		return fmt.Sprintf("%q…", value[:cut])
	}
	return fmt.Sprintf("%q", value)
}
