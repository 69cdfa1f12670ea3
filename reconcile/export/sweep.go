package export

import (
	"os"
	"path/filepath"
	"strings"
)

const (
	draftBegin  = ".billing-"
	draftSuffix = ".tmp"
	// maxNameInDraft keeps the name of a draft within what file systems take.
	maxNameInDraft = 150
)

// draftPrefix begins the names of all drafts of a target.
func draftPrefix(target string) string {
	base := filepath.Base(target)
	if len(base) > maxNameInDraft {
		base = base[:maxNameInDraft]
	}
	return draftBegin + base + "-"
}

// sweep removes what killed processes left beside a target, before anything is written:
// it may be what fills the disk. What cannot be removed does no harm.
func sweep(target string) {
	entries, err := os.ReadDir(filepath.Dir(target))
	if err != nil {
		return
	}
	for _, e := range entries {
		if draftPrefix(targetOf(e.Name())) == draftPrefix(target) && e.Type().IsRegular() {
			sweepFile(filepath.Join(filepath.Dir(target), e.Name()))
		}
	}
}

// targetOf is the name of the file that a draft is of, cut if it was too long; a dot for
// what is no draft.
func targetOf(name string) string {
	name, ok := strings.CutPrefix(name, draftBegin)
	name, temporary := strings.CutSuffix(name, draftSuffix)
	dash := strings.LastIndexByte(name, '-')
	if !ok || !temporary || dash < 0 || strings.Trim(name[dash+1:], "0123456789") != "" {
		return "."
	}
	return name[:dash]
}

// sweepFile removes a draft whose owner is gone: its lock went with it.
func sweepFile(path string) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if lockFile(file) == lockHeld && isAt(file) {
		_ = os.Remove(path)
	}
}
