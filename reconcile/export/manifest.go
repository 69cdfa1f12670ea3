package export

import (
	"encoding/json"
	"io"
)

// manifestVersion grows when a field of the manifest changes its meaning.
const manifestVersion = 1

// Manifest says what belongs to a set of files. It appears last, so a reader that waits
// for it finds everything that it names; it has no time in it, so that the same ledger
// gives the same bytes.
type Manifest struct {
	SchemaVersion int    `json:"schema_version"`
	Export        string `json:"export"` // charges, events, journal, month
	Job           string `json:"job"`
	Period        string `json:"period"`
	RunID         string `json:"run_id"` // the last run of the period; empty before the first
	Files         []File `json:"files"`
}

// File is one file of a set.
type File struct {
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Sums   []Sum  `json:"sums"`
}

// Sum is what the rows of a file in one currency come to, in major units: the amount
// of charges, or both sides of a journal.
type Sum struct {
	Currency string `json:"currency"`
	Rows     int64  `json:"rows"`
	Amount   string `json:"amount,omitempty"`
	Debit    string `json:"debit,omitempty"`
	Credit   string `json:"credit,omitempty"`
}

func (m Manifest) write(w io.Writer) error {
	m.SchemaVersion = manifestVersion
	for i := range m.Files {
		if m.Files[i].Sums == nil {
			m.Files[i].Sums = []Sum{}
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(m)
}
