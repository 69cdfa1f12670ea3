package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mounts mounts something for a test; false where that is not allowed.
func mounts(t testing.TB, at string, args ...string) bool {
	t.Helper()
	if err := exec.Command("mount", append(args, at)...).Run(); err != nil {
		return false
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return true
}

// limited runs the program with a bound on the size of files, in blocks of 512 bytes
// (of 1024 in some shells).
func (o *office) limited(blocks int, args ...string) outcome {
	o.t.Helper()
	script := fmt.Sprintf(`ulimit -f %d && exec "$0" "$@"`, blocks)
	return o.startProgram("/bin/sh", append([]string{"-c", script, program}, args...)...).wait()
}

// full exports over an old set, with less and less room, and wants the old set or the
// new one, whole, and nothing else. It returns how often there was no room.
func (o *office) full(dir, format string, export func(step int, args ...string) (outcome, bool)) (refused int) {
	o.t.Helper()
	args := []string{"export", "charges", "--period", october, "--format", format, "--output"}
	whole := o.t.TempDir()
	o.must(0, append(args, whole)...)
	wanted := folder(o.t, whole)
	for step := 0; ; step++ {
		before := folder(o.t, dir)
		r, more := export(step, append(args, dir)...)
		after := folder(o.t, dir)
		switch {
		case r.code == 0 && cmp.Equal(after, wanted):
			if !more {
				return refused
			}
		case (r.code == 73 || r.code == 74) && cmp.Equal(before, after):
			if refused++; !strings.Contains(r.stderr, dir) {
				o.t.Errorf("it does not name the file\n%s", r)
			}
		default:
			o.t.Errorf("step %d: exit %d and the folder has %s\n%s", step, r.code, namesOf(after), r)
		}
		if !more {
			return refused
		}
	}
}

// T66: on a disk that is full, at whatever point, the export fails, the old files are as
// they were, and nothing lies about. The disk is a small one where tests may mount it,
// and a bound on the size of files in any case.
func TestAnExportToAFullDisk(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.hasPaid(2000)
	for _, format := range []string{"csv", "xlsx"} {
		dir := t.TempDir()
		old := map[string]string{"charges-2026-10." + format: "old", "charges-2026-10." + format + ".manifest.json": "{}"}
		for name, text := range old {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		sizes := []int{0, 1, 8, 64, 200, 10_000}
		refused := o.full(dir, format, func(step int, args ...string) (outcome, bool) {
			return o.limited(sizes[step], args...), step+1 < len(sizes)
		})
		if refused < 4 {
			t.Errorf("%s: only %d of %d bounds were felt", format, refused, len(sizes))
		}
	}
	small := t.TempDir()
	if !mounts(t, small, "-t", "tmpfs", "-o", "size=2M", "none") {
		t.Log("no disk may be mounted here: the bound on the size of files is the proof")
		return
	}
	for _, format := range []string{"csv", "jsonl", "xlsx"} {
		filler := filepath.Join(small, "filler")
		refused := o.full(small, format, func(step int, args ...string) (outcome, bool) {
			left := []int64{0, 4, 40, 300, 500, 600, 1400}[step] << 10
			if err := os.WriteFile(filler, make([]byte, 2<<20-8192), 0o644); err != nil {
				_ = os.Truncate(filler, 0)
			}
			if err := os.Truncate(filler, max(0, 2<<20-left-16384)); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(filler)
			return o.run(args...), step < 6
		})
		for name := range folder(t, small) {
			if err := os.Remove(filepath.Join(small, name)); err != nil {
				t.Fatal(err)
			}
		}
		if refused == 0 || refused == 7 {
			t.Errorf("%s: %d of 7 had no room", format, refused)
		}
	}
}

// T66: a device that takes nothing is an error, also for what is buffered until the end.
func TestAnExportToADeviceThatIsFull(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.month(0)
	for _, format := range []string{"csv", "jsonl", "xlsx"} {
		o.must(74, "export", "charges", "--period", october, "--format", format, "--output", "/dev/full")
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "export", "charges", "--period", october, "--format", format)
		for name, value := range o.env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Stdout = full
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 74 {
			t.Errorf("%s to a full stdout: %v", format, err)
		}
		full.Close()
	}
}

// T65: TMPDIR is on another disk, the target is a link to a third one: what is written
// lies beside the target, so that it can take its place.
func TestAnExportAcrossDisks(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.month(0)
	shm, err := os.MkdirTemp("/dev/shm", "billing-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	o.env["TMPDIR"] = shm
	dir, other := t.TempDir(), filepath.Join(shm, "volume")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "charges-2026-10.csv")
	if err := os.Symlink(filepath.Join(other, "goal.csv"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "goal.csv"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{link, dir} {
		o.must(0, "export", "charges", "--period", october, "--output", output)
		if got := folder(t, other)["goal.csv"]; strings.Count(got, "\n") != 3 {
			t.Errorf("--output %s: the goal has %q", output, got)
		}
		if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("--output %s: the link is gone: %v", output, err)
		}
	}
	if got := namesOf(folder(t, other)); got != "goal.csv" {
		t.Errorf("beside the goal there is %s", got)
	}
	// A link to a folder is a folder.
	folderLink := filepath.Join(dir, "exports")
	if err := os.Symlink(other, folderLink); err != nil {
		t.Fatal(err)
	}
	o.must(0, "export", "charges", "--period", october, "--output", folderLink)
	if got := namesOf(folder(t, other)); got != "charges-2026-10.csv charges-2026-10.csv.manifest.json goal.csv" {
		t.Errorf("the linked folder has %s", got)
	}
}

// T65: into a folder that can't be written to, and onto a file that is a mount of its
// own, nothing comes, and the error says what to do.
func TestAnExportToAPlaceThatCannotChange(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.month(0)
	dir := t.TempDir()
	path := filepath.Join(dir, "charges.csv")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuses := func(says, at, output string) {
		t.Helper()
		before := folder(t, at)
		r := o.must(73, "export", "charges", "--period", october, "--output", output)
		if !strings.Contains(r.stderr, says) || !cmp.Equal(before, folder(t, at)) {
			t.Errorf("it does not say %q, or the folder changed to %s\n%s", says, namesOf(folder(t, at)), r)
		}
	}
	fixed := t.TempDir()
	if mounts(t, fixed, "--bind", dir) {
		if out, err := exec.Command("mount", "-o", "remount,bind,ro", fixed).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	} else { // an ordinary user is held by rights instead
		fixed = dir
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	refuses("check the folder and its rights", fixed, filepath.Join(fixed, "charges.csv"))
	refuses("check the folder and its rights", fixed, fixed)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	single := t.TempDir()
	point := filepath.Join(single, "charges-2026-10.csv")
	if err := os.WriteFile(point, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if mounts(t, point, "--bind", path) {
		refuses("mount its folder instead", single, point)
		refuses("mount its folder instead", single, single)
	} else if err := os.Remove(point); err != nil {
		t.Fatal(err)
	} else if err := os.Mkdir(point, 0o755); err != nil { // nothing can take its place either
		t.Fatal(err)
	} else if r := o.must(73, "export", "charges", "--period", october, "--output", single); !strings.Contains(r.stderr, "it is a folder") {
		t.Errorf("%s", r)
	}
}

// Killed while it writes, an export leaves the old set whole; the next one leaves
// nothing of what was begun.
func TestAnExportThatIsKilled(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.hasPaid(20_000)
	dir, args := t.TempDir(), []string{"export", "charges", "--period", october, "--output"}
	o.must(0, append(args, dir)...)
	old := folder(t, dir)
	o.exec(`UPDATE billing.charges SET refunds = 1`)
	killed := 0
	for at := range int64(8) {
		p := o.start(append(args, dir)...)
		eventually(t, "it writes", func() bool {
			select {
			case <-p.Done():
				return true
			default:
				return drafts(t, dir) >= at*700_000
			}
		})
		p.kill()
		now := folder(t, dir)
		for name := range now {
			if strings.HasPrefix(name, ".billing-") {
				delete(now, name)
			}
		}
		if cmp.Equal(now, old) {
			killed++
			continue
		}
		manifestOf(t, now, "charges-2026-10.csv.manifest.json")
	}
	if killed < 3 {
		t.Errorf("it was killed %d times while it wrote", killed)
	}
	o.must(0, append(args, dir)...)
	after := folder(t, dir)
	if len(after) != 2 || strings.Count(after["charges-2026-10.csv"], "\n") != 20_001 {
		t.Errorf("the folder has %s", namesOf(after))
	}
	manifestOf(t, after, "charges-2026-10.csv.manifest.json")
}
