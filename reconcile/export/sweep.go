package export

import (
	"os"
	"path/filepath"
	"strings"
)

const (
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
	return ".billing-" + base + "-"
}

// sweep removes what killed processes left beside a target, before anything is written:
// it may be what fills the disk. What cannot be removed does no harm.
func sweep(target string) {
	entries, err := os.ReadDir(filepath.Dir(target))
	if err != nil {
		return
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), draftPrefix(target))
		number, temporary := strings.CutSuffix(number, draftSuffix)
		if !ok || !temporary || strings.Trim(number, "0123456789") != "" {
			continue
		}
		if e.Type().IsRegular() {
			sweepFile(filepath.Join(filepath.Dir(target), e.Name()))
		}
	}
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
