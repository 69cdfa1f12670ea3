package sheet

import (
	"slices"
	"strings"
	"unicode"
)

// Column is a column that a file may have. Its name is a public interface.
type Column struct {
	Name     string
	Required bool
	// Also are other titles that it is known by. Case, blanks and signs make no
	// difference: "Invoice #", "*InvoiceNumber" and "invoice_number" are one.
	Also []string
	// Totals are those of Also that say that an amount is a whole invoice's, and so
	// would be counted once for each of its lines.
	Totals []string
}

// Wrong is a file that is known by its titles and is not what is asked for.
type Wrong struct {
	What string     // "Stripe's export of payouts"
	Type string     // what to do instead
	All  [][]string // each a set of titles; one of the sets that is there whole gives it away
}

// Kind is what a file is expected to hold.
type Kind struct {
	Columns []Column
	Wrong   []Wrong
	// Account and Amount name the columns that a total below the rows is known by;
	// empty for a file that has none.
	Account, Amount string
}

// key is how a title is compared: its letters and digits.
func key(title string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

func (k Kind) find(name string) *Column {
	for i := range k.Columns {
		if k.Columns[i].Name == name {
			return &k.Columns[i]
		}
	}
	return nil
}

// titles maps what a title may be to the column that it means. A title that a person
// assigned means that alone, and the column has no other.
func (k Kind) titles(assigned map[string]string) map[string]string {
	out := map[string]string{}
	for _, c := range k.Columns {
		if title, ok := assigned[c.Name]; ok {
			out[key(title)] = c.Name
		}
	}
	for _, c := range k.Columns {
		if _, ok := assigned[c.Name]; ok {
			continue
		}
		for _, title := range append([]string{c.Name}, c.Also...) {
			if _, taken := out[key(title)]; !taken {
				out[key(title)] = c.Name
			}
		}
	}
	return out
}

// isTotal reports whether a title says that an amount is a whole invoice's.
func (c Column) isTotal(title string) bool {
	return slices.ContainsFunc(c.Totals, func(t string) bool { return key(t) == key(title) })
}

// wrong finds the file that the titles give away.
func (k Kind) wrong(titles []string) *Wrong {
	there := map[string]bool{}
	for _, t := range titles {
		there[key(t)] = true
	}
	for i, w := range k.Wrong {
		for _, set := range w.All {
			if !slices.ContainsFunc(set, func(t string) bool { return !there[key(t)] }) {
				return &k.Wrong[i]
			}
		}
	}
	return nil
}

// Names lists the columns.
func (k Kind) Names() string { return k.names(false) }

// names lists the columns, all or those that a file must have.
func (k Kind) names(required bool) string {
	var names []string
	for _, c := range k.Columns {
		if c.Required || !required {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}

// totalWords are what stands in front of a total below the rows.
var totalWords = []string{
	"total", "totals", "subtotal", "grandtotal", "sum", "totalamount", "alltotal", "summe", "gesamt", "gesamtsumme", "gesamtbetrag",
	"zwischensumme", "totalgeneral", "somme", "totale", "totaal", "suma", "soma", "razem", "summa", "合計", "总计", "합계",
}

func isTotalWord(cell string) bool { return slices.Contains(totalWords, key(cell)) }
