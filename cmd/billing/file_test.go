package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/chargeonce/billing/reconcile/export"
)

// What can't be created and what can't be written are told apart, and a device
// is written to, never replaced.
func TestWriteFileSaysWhatFailed(t *testing.T) {
	dir := t.TempDir()
	dangling := filepath.Join(dir, "dangling.csv")
	if err := os.Symlink(filepath.Join(dir, "nowhere", "x"), dangling); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		filepath.Join(dir, "no", "such", "folder.csv"): exitCannotCreate,
		dir:         exitCannotCreate,
		dangling:    exitCannotCreate,
		"/dev/full": exitIOError,
	} {
		err := export.WriteFile(path, func(w io.Writer) error { _, err := io.WriteString(w, "text"); return err })
		if got := classify(err).code; got != want {
			t.Errorf("%s: exit %d (%v), want %d", path, got, err, want)
		}
	}
	if err := export.WriteFile("/dev/null", func(w io.Writer) error { _, err := io.WriteString(w, "text"); return err }); err != nil {
		t.Errorf("/dev/null: %v", err)
	}
	if info, err := os.Lstat("/dev/null"); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Fatalf("/dev/null is no device any more: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("something was left: %v, %v", entries, err)
	}
}

// A stream can be read again from its beginning, also one that is too long for
// memory.
func TestOpenInputCanStartAgain(t *testing.T) {
	for _, size := range []int{0, 10, maxInMemory - 1, maxInMemory, maxInMemory + 10} {
		a := &app{in: io.LimitReader(endless{}, int64(size))}
		in, err := a.openInput("-")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := in.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, in); n != int64(size) || err != nil {
				t.Errorf("read %d bytes of %d: %v", n, size, err)
			}
		}
		in.close()
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A file that isn't there is a slip of the command line, not of the program.
func TestOpenInputRefusesWhatIsNoFile(t *testing.T) {
	a := &app{}
	for _, path := range []string{"", filepath.Join(t.TempDir(), "no.csv"), t.TempDir()} {
		_, err := a.openInput(path)
		if got := classify(err).code; got != exitUsage {
			t.Errorf("%q: exit %d (%v), want %d", path, got, err, exitUsage)
		}
	}
}
