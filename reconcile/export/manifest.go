package export

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	manifestSuffix = ".manifest.json"
	// maxManifest is more than any manifest has: sets have a few files.
	maxManifest = 1 << 20
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

// hideManifests takes away the manifests that name a file which is about to change, but
// for one, and what killed processes left of such. hashes are the new SHA-256 by the
// file's path.
func (u *undo) hideManifests(hashes map[string]string, own string) error {
	dirs := map[string]bool{}
	for path := range hashes {
		dirs[filepath.Dir(path)] = true
	}
	for dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // who may not list it finds no manifests there
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case !e.Type().IsRegular() || path == own:
			case strings.HasSuffix(targetOf(e.Name()), manifestSuffix):
				sweepFile(path)
			case strings.HasSuffix(e.Name(), manifestSuffix) && becomesFalse(path, hashes):
				if err := u.hide(path); err != nil {
					return fmt.Errorf("the manifest %s names it, and can't be taken away: %w", path, unwrapPath(err))
				}
			}
		}
	}
	return nil
}

// becomesFalse reports that a manifest names a file that gets another content.
func becomesFalse(path string, hashes map[string]string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var m Manifest
	if json.NewDecoder(io.LimitReader(file, maxManifest)).Decode(&m) != nil {
		return false // it is not ours
	}
	for _, f := range m.Files {
		if hash, changes := hashes[filepath.Join(filepath.Dir(path), f.Name)]; changes && hash != f.SHA256 {
			return true
		}
	}
	return false
}
