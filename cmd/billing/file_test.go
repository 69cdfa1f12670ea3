package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writes(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

// wantFolder compares the names of a folder, so that litter is seen.
func wantFolder(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the folder has %q, want %q", got, want)
	}
}

func wantFile(t *testing.T, path, want string, mode os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || string(text) != want {
		t.Errorf("%s is %q, %v, want %q", path, text, err, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != mode {
		t.Errorf("%s: mode %v, %v, want %v", path, info.Mode(), err, mode)
	}
}

// A file appears with all that was written, also in the place of an old one,
// which keeps its rights.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "charges.csv")
	if err := writeFile(path, writes("one")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "one", 0o644)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(path, writes("two")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "two", 0o600)
	wantFolder(t, dir, "charges.csv")
}

// Whatever fails, the old file is as it was and nothing lies about.
func TestWriteFileLeavesTheOldOneAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "charges.csv")
	if err := writeFile(path, writes("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the database went away")
	err := writeFile(path, func(w io.Writer) error {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) || classify(err).code == exitIOError {
		t.Errorf("got %v, want the error of what was written", err)
	}
	wantFile(t, path, "old", 0o644)
	wantFolder(t, dir, "charges.csv")
}

// A link is followed: it stays a link, and the file is written beside its goal.
func TestWriteFileFollowsALink(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	goal, link := filepath.Join(other, "goal.csv"), filepath.Join(dir, "link.csv")
	if err := writeFile(goal, writes("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(goal, link); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(link, writes("new")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, goal, "new", 0o644)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	wantFolder(t, other, "goal.csv")
}

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
		err := writeFile(path, writes("text"))
		if got := classify(err).code; got != want {
			t.Errorf("%s: exit %d (%v), want %d", path, got, err, want)
		}
	}
	if err := writeFile("/dev/null", writes("text")); err != nil {
		t.Errorf("/dev/null: %v", err)
	}
	if info, err := os.Lstat("/dev/null"); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Fatalf("/dev/null is no device any more: %v", err)
	}
	wantFolder(t, dir, "dangling.csv")
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
