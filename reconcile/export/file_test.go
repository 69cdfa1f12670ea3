package export

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	if err := WriteFile(path, writes("one")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "one", 0o644)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, writes("two")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "two", 0o600)
	wantFolder(t, dir, "charges.csv")
}

// Whatever fails, the old file is as it was and nothing lies about.
func TestWriteFileLeavesTheOldOneAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "charges.csv")
	if err := WriteFile(path, writes("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the database went away")
	err := WriteFile(path, func(w io.Writer) error {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of what was written", err)
	}
	wantFile(t, path, "old", 0o644)
	wantFolder(t, dir, "charges.csv")
}

// A link is followed: it stays a link, and the file is written beside its goal.
func TestWriteFileFollowsALink(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	goal, link := filepath.Join(other, "goal.csv"), filepath.Join(dir, "link.csv")
	if err := WriteFile(goal, writes("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(goal, link); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, writes("new")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, goal, "new", 0o644)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	wantFolder(t, other, "goal.csv")
}

// A link to a file that is not there yet is followed, too; a ring of links is refused.
func TestWriteFileFollowsALinkToNothing(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for link, goal := range map[string]string{
		"folder": other, "first.csv": "second.csv", "second.csv": filepath.Join("folder", "goal.csv"), "up.csv": "folder/../beside.csv", "ring.csv": "ring.csv",
	} {
		if err := os.Symlink(goal, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"first.csv", "up.csv"} {
		if err := WriteFile(filepath.Join(dir, name), writes(name)); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("the link is gone: %v", err)
		}
	}
	wantFile(t, filepath.Join(other, "goal.csv"), "first.csv", 0o644)
	wantFile(t, filepath.Join(filepath.Dir(other), "beside.csv"), "up.csv", 0o644)
	if err := WriteFile(filepath.Join(dir, "ring.csv"), writes("x")); err == nil {
		t.Error("a ring was written to")
	}
}

// A file that takes the place of another one has its owner and its group, as far as they
// are ours to give.
func TestWriteFileKeepsTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "charges.csv")
	if err := WriteFile(path, writes("old")); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 12345, 23456
	} else if groups, err := os.Getgroups(); err == nil && len(groups) > 0 {
		gid = groups[len(groups)-1]
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, writes("new")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "new", 0o644)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if of := info.Sys().(*syscall.Stat_t); int(of.Uid) != uid || int(of.Gid) != gid {
		t.Errorf("it is of %d:%d, want %d:%d", of.Uid, of.Gid, uid, gid)
	}
}
