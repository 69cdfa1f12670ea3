package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// The steps of an export are stopped in another process, which is this test's program
// once more: it writes a set, or a file, and dies or fails at a step.
const (
	childDir  = "BILLING_EXPORT_TEST_DIR"
	childStep = "BILLING_EXPORT_TEST_STEP"
	childHow  = "BILLING_EXPORT_TEST_HOW"
	childWhat = "BILLING_EXPORT_TEST_WHAT"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDir) == "" {
		os.Exit(m.Run())
	}
	os.Exit(child())
}

// child reports the steps on stdout. Its code is 0, or 9 after an error.
func child() int {
	at, _ := strconv.Atoi(os.Getenv(childStep))
	n := 0
	step = func(name string) error {
		n++
		fmt.Println(name)
		if n != at {
			return nil
		}
		if os.Getenv(childHow) == "killed" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return syscall.ENOSPC
	}
	err := putSet(os.Getenv(childDir), "new")
	if os.Getenv(childWhat) == "file" {
		err = WriteFile(filepath.Join(os.Getenv(childDir), "charges.csv"), bodyOf("charges", "new"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	return 0
}

// bodyOf is a content that is longer than one write.
func bodyOf(name, version string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat(name+" "+version+"\n", 25_000))
		return err
	}
}

var members = []string{"charges", "events"}

// putSet publishes a set of two files. A step that is meant for another kind of child
// stops nothing here.
func putSet(dir, version string) (err error) {
	if os.Getenv(childWhat) == "file" {
		return nil
	}
	set := NewFolderSet(dir, false)
	defer func() { err = errors.Join(err, set.Discard()) }()
	for i, name := range members {
		err := set.Add(name+".csv", func(w io.Writer) (Content, error) {
			return Content{Rows: int64(i)}, bodyOf(name, version)(w)
		})
		if err != nil {
			return err
		}
	}
	_, err = set.Publish(context.Background(), "month.manifest.json", Manifest{Export: "month", RunID: version})
	return err
}

// stopped runs a child that stops at a step. It returns the steps it took, and whether
// it came to its end.
func stopped(t *testing.T, dir, what, how string, at int) (steps []string, whole bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childStep+"="+strconv.Itoa(at), childHow+"="+how, childWhat+"="+what)
	out, err := cmd.Output()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		whole = true
	case !ended || exit.ExitCode() != 9 && how == "failed":
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), whole
}

// readSet reads a set as a reader should: the manifest, then what it names. It is empty
// where there is no manifest, and an error if they do not belong together.
func readSet(dir string) (version string, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "month.manifest.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return "", fmt.Errorf("a part of a manifest: %w", err)
	}
	for _, f := range m.Files {
		if sum, err := hashFile(filepath.Join(dir, f.Name)); err != nil || sum != f.SHA256 {
			return m.RunID, fmt.Errorf("%s is not the one of %s, %w", f.Name, m.RunID, err)
		}
	}
	return m.RunID, nil
}

// wantWhole wants every file that is there to be one version, whole.
func wantWhole(t *testing.T, dir, at string) {
	t.Helper()
	for _, name := range members {
		text, err := os.ReadFile(filepath.Join(dir, name+".csv"))
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if string(text) != strings.Repeat(line+"\n", 25_000) {
			t.Errorf("%s: %s is a part of a file", at, name)
		}
	}
}

// Killed at any step, a set is the old one, or the new one, or has no manifest; every
// file is whole, and the next export leaves nothing of what was begun.
func TestKilledAtEveryStep(t *testing.T) {
	eachStep(t, "killed", func(t *testing.T, dir, what, at string) {
		wantWhole(t, dir, at)
		if version, err := readSet(dir); err != nil && what != "file" {
			t.Errorf("%s: the set is %q, %v", at, version, err)
		}
		if _, whole := stopped(t, dir, what, "killed", 0); !whole {
			t.Errorf("%s: the next export did not come to its end", at)
		}
		wantOnly(t, dir, what, at, "new")
	})
}

// A disk that is full at any step leaves the old set, whole, or the new one, and no litter.
func TestTheDiskIsFullAtEveryStep(t *testing.T) {
	eachStep(t, "failed", func(t *testing.T, dir, what, at string) { wantOnly(t, dir, what, at, "old", "new") })
}

// wantOnly wants one of some versions, and nothing else in the folder.
func wantOnly(t *testing.T, dir, what, at string, versions ...string) {
	t.Helper()
	version, err := readSet(dir)
	if what == "file" {
		text, _ := os.ReadFile(filepath.Join(dir, "charges.csv"))
		version = strings.TrimPrefix(strings.SplitN(string(text), "\n", 2)[0], "charges ")
		wantWhole(t, dir, at)
	}
	if !slices.Contains(versions, version) || err != nil && what != "file" {
		t.Errorf("%s: the set is %q, %v, want one of %q", at, version, err, versions)
	}
	if what == "file" && version == "new" {
		// The old set's manifest is not true any more.
		wantFolder(t, dir, "charges.csv", "events.csv")
		return
	}
	wantFolder(t, dir, "charges.csv", "events.csv", "month.manifest.json")
}

// eachStep stops a child at each of its steps in turn, each time over an old set.
func eachStep(t *testing.T, how string, check func(t *testing.T, dir, what, at string)) {
	for what, fewest := range map[string]int{"file": 5, "set": 20, "first set": 14} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				dir := t.TempDir()
				if what != "first set" {
					if err := putSet(dir, "old"); err != nil {
						t.Fatal(err)
					}
				}
				steps, whole := stopped(t, dir, what, how, n)
				if whole {
					if n <= fewest {
						t.Fatalf("only %d steps: %q", n-1, steps)
					}
					return
				}
				at := fmt.Sprintf("%s at step %d, %s", how, n, steps[len(steps)-1])
				if what == "first set" && how == "failed" {
					firstOrNothing(t, dir, at)
					continue
				}
				check(t, dir, what, at)
			}
		})
	}
}

// firstOrNothing is for a folder that had nothing before.
func firstOrNothing(t *testing.T, dir, at string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	version, err := readSet(dir)
	if err != nil || version == "" && len(entries) > 0 {
		t.Errorf("%s: version %q, %v, and %d files", at, version, err, len(entries))
	}
}

// Who reads the manifest, the files and the manifest again, and finds the same manifest,
// has the files that belong to it, however often the set is replaced meanwhile.
func TestAReaderNeverSeesHalfASet(t *testing.T) {
	dir := t.TempDir()
	var done atomic.Bool
	finished := make(chan error, 1)
	go func() {
		defer done.Store(true)
		for n := range 60 {
			if err := putSet(dir, strconv.Itoa(n)); err != nil {
				finished <- err
				return
			}
		}
		finished <- nil
	}()
	seen := map[string]bool{}
	for !done.Load() {
		before, _ := os.ReadFile(filepath.Join(dir, "month.manifest.json"))
		version, err := readSet(dir)
		after, _ := os.ReadFile(filepath.Join(dir, "month.manifest.json"))
		if err != nil && len(before) > 0 && string(before) == string(after) {
			t.Fatalf("half a set: %v", err)
		}
		if err == nil {
			seen[version] = true
		}
		wantWhole(t, dir, "read")
	}
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	if version, err := readSet(dir); version != "59" || err != nil || len(seen) < 5 {
		t.Errorf("in the end %q, %v; %d versions were seen", version, err, len(seen))
	}
}

// Two that write the same set at once leave one of the two, whole.
func TestTwoWritersOfASetLeaveOne(t *testing.T) {
	dir := t.TempDir()
	errs := make(chan error)
	for w := range 2 {
		go func() {
			for n := range 30 {
				if err := putSet(dir, fmt.Sprint(w, ".", n)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if version, err := readSet(dir); err != nil || !strings.HasSuffix(version, ".29") {
		t.Errorf("the set is %q, %v", version, err)
	}
	wantFolder(t, dir, "charges.csv", "events.csv", "month.manifest.json")
}

// A draft that another process is writing is not swept; one whose process is gone is.
func TestOnlyWhatWasLeftIsSwept(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "charges.csv")
	alive, err := begin(target, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, ".billing-charges.csv-123"+draftSuffix)
	other := filepath.Join(dir, ".billing-charges.csv-backup"+draftSuffix)
	for _, name := range []string{left, other} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(target, bodyOf("charges", "new")); err != nil {
		t.Fatal(err)
	}
	wantFolder(t, dir, filepath.Base(alive.file.Name()), filepath.Base(other), "charges.csv")
	if err := alive.discard(); err != nil {
		t.Error(err)
	}
}
