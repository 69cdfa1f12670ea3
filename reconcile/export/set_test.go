package export

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// putOne publishes a set of charges.csv alone.
func putOne(dir, version string) (err error) {
	set := NewFolderSet(dir, false)
	defer func() { err = errors.Join(err, set.Discard()) }()
	err = set.Add("charges.csv", func(w io.Writer) (Content, error) { return Content{}, bodyOf("charges", version)(w) })
	if err != nil {
		return err
	}
	_, err = set.Publish(context.Background(), "charges.manifest.json", Manifest{Export: "charges", RunID: version})
	return err
}

// failingAt makes a step fail for the rest of a test.
func failingAt(t *testing.T, name string) {
	t.Helper()
	step = func(at string) error {
		if at == name {
			return syscall.ENOSPC
		}
		return nil
	}
	t.Cleanup(func() { step = func(string) error { return nil } })
}

// The manifest of another set stays while it is true, and goes when a file that it names
// changes, by a set or alone; after a failure it is back.
func TestAManifestGoesWithTheFileThatItNames(t *testing.T) {
	for name, tt := range map[string]struct {
		put  func(dir string) error
		want string
	}{
		"the same":  {func(dir string) error { return putOne(dir, "old") }, "charges.csv charges.manifest.json events.csv month.manifest.json"},
		"another":   {func(dir string) error { return putOne(dir, "new") }, "charges.csv charges.manifest.json events.csv"},
		"a file":    {func(dir string) error { return WriteFile(filepath.Join(dir, "charges.csv"), writes("new")) }, "charges.csv events.csv"},
		"no member": {func(dir string) error { return WriteFile(filepath.Join(dir, "x.csv"), writes("new")) }, "charges.csv events.csv month.manifest.json x.csv"},
		"failed": {func(dir string) error {
			failingAt(t, "rename charges.csv")
			for _, err := range []error{putOne(dir, "new"), WriteFile(filepath.Join(dir, "charges.csv"), writes("new"))} {
				if !errors.Is(err, syscall.ENOSPC) {
					return errors.Join(errors.New("it did not fail"), err)
				}
			}
			return nil
		}, "charges.csv events.csv month.manifest.json"},
	} {
		dir := t.TempDir()
		if err := putSet(dir, "old"); err != nil {
			t.Fatal(err)
		}
		if err := tt.put(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		step = func(string) error { return nil }
		wantFolder(t, dir, strings.Split(tt.want, " ")...)
		if version, err := readSet(dir); err != nil {
			t.Errorf("%s: the set of %s is not true: %v", name, version, err)
		}
	}
}

// Where others' files get no second name, the old set is put back from copies.
func TestTheOldSetIsPutBackWithoutSecondNames(t *testing.T) {
	link = func(string, string) error { return syscall.EPERM }
	defer func() { link = os.Link }()
	dir := t.TempDir()
	if err := putSet(dir, "old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "charges.csv"), 0o640); err != nil {
		t.Fatal(err)
	}
	failingAt(t, "rename month.manifest.json")
	if err := putSet(dir, "new"); !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "export again") {
		t.Errorf("got %v", err)
	}
	if version, err := readSet(dir); version != "old" || err != nil {
		t.Errorf("the set is %q, %v", version, err)
	}
	wantFolder(t, dir, "charges.csv", "events.csv", "month.manifest.json")
	if info, err := os.Stat(filepath.Join(dir, "charges.csv")); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// What could not be put back is named, and the hint does not say that all is as it was.
func TestWhatIsNotPutBackIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := putSet(dir, "old"); err != nil {
		t.Fatal(err)
	}
	rename = func(string, string) error { return syscall.EROFS }
	defer func() { rename = os.Rename }()
	failingAt(t, "rename month.manifest.json")
	err := putSet(dir, "new")
	e, ok := errors.AsType[*Error](err)
	if !ok || !strings.Contains(e.Hint, "export again") || !strings.Contains(err.Error(), "charges.csv is of the new set") || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, %+v", err, e)
	}
}

// What is on its way into a bucket has no name, so that nobody can read or block it.
func TestADraftForABucketHasNoName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"charges.csv", "charges.0123456789abcdef.csv"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, byHash := range []bool{false, true} {
		set := (&Bucket{name: "finance", scratch: dir}).NewSet(byHash)
		if err := set.Add("charges.csv", func(w io.Writer) (Content, error) { return Content{}, writes("secret")(w) }); err != nil {
			t.Fatal(err)
		}
		wantFolder(t, dir, "charges.0123456789abcdef.csv", "charges.csv")
		if info, err := set.drafts[0].file.Stat(); err != nil || info.Mode() != 0o600 || info.Size() != 6 {
			t.Errorf("%v, %v", info, err)
		}
		if err := set.Discard(); err != nil {
			t.Error(err)
		}
	}
}

// Every file is on disk before it takes its place, and every change of the folder before
// the next kind of change, and at the end.
func TestWhatAppearsIsOnDisk(t *testing.T) {
	dir := t.TempDir()
	if err := putSet(dir, "old"); err != nil {
		t.Fatal(err)
	}
	var got []string
	step = func(name string) error {
		if strings.HasPrefix(name, "rename ") || strings.HasPrefix(name, "hide ") {
			got = append(got, name)
		}
		return nil
	}
	flush = func(f *os.File) error {
		name := "flush " + f.Name()
		for _, known := range []string{"charges", "events", "month"} {
			if strings.Contains(filepath.Base(f.Name()), known) {
				name = "flush " + known
			}
		}
		got = append(got, strings.ReplaceAll(name, dir, "the folder"))
		return f.Sync()
	}
	defer func() { step, flush = func(string) error { return nil }, (*os.File).Sync }()
	if err := putSet(dir, "new"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"flush charges", "flush events", "flush month", "hide month.manifest.json", "flush the folder", "rename charges.csv", "rename events.csv",
		"flush the folder", "rename month.manifest.json", "flush the folder",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got = nil
	if err := WriteFile(filepath.Join(dir, "charges.csv"), writes("new")); err != nil {
		t.Fatal(err)
	}
	want = []string{"flush charges", "hide month.manifest.json", "flush the folder", "rename charges.csv", "flush the folder"}
	if !slices.Equal(got, want) {
		t.Errorf("a file: got %q, want %q", got, want)
	}
}

// While files of a set change, nobody else gets the folder's lock.
func TestASetChangesUnderTheFoldersLock(t *testing.T) {
	dir := t.TempDir()
	seen := 0
	step = func(name string) error {
		if name != "rename charges.csv" {
			return nil
		}
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		if seen++; lockFile(d) != lockTaken {
			t.Error("the folder is not locked")
		}
		return nil
	}
	defer func() { step = func(string) error { return nil } }()
	if err := errors.Join(putSet(dir, "new"), WriteFile(filepath.Join(dir, "charges.csv"), writes("new"))); err != nil || seen != 2 {
		t.Errorf("%d times: %v", seen, err)
	}
}
