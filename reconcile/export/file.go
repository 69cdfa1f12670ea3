package export

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// step is told of each step on the disk before it is taken. Tests stop a process there.
var step = func(string) error { return nil }

// flush puts a file or a folder on disk. Tests see what it is called for.
var flush = (*os.File).Sync

// Write writes a stream, such as stdout. What fails in it is an *Error.
func Write(w io.Writer, write func(io.Writer) error) error {
	buf := bufio.NewWriterSize(sink{w}, 64<<10)
	if err := write(buf); err != nil {
		return err
	}
	return buf.Flush()
}

// sink marks the errors of a writer as failures of the output, so that they are told
// from failures of what is written.
type sink struct{ io.Writer }

func (s sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return n, &Error{Trouble: ReaderGone, err: fmt.Errorf("write the output: %w", err)}
	}
	if err != nil {
		err = cannotWrite("write the output: %w", err)
	}
	return n, err
}

// WriteFile puts what write writes into the place of path. It is written beside it
// under a name with a dot, and takes its place when it is safe on disk; after a
// failure the old file is as it was. A link is followed, a device or a pipe is written
// to as it is. The manifest of a set that the file was in goes away, if it is another
// file now. An *Error says what could not be written.
func WriteFile(path string, write func(io.Writer) error) error {
	target, mode, err := resolve(path)
	if err != nil {
		return cannotCreate("create %s: %w", path, err)
	}
	if !mode.IsRegular() {
		return writeDevice(target, write)
	}
	sweep(target)
	t, err := begin(target, mode)
	if err != nil {
		return cannotCreate("create %s: %w", path, unwrapPath(err))
	}
	if err := t.fill(write); err != nil {
		return errors.Join(err, t.discard())
	}
	if err := t.replace(path); err != nil {
		return errors.Join(err, t.discard())
	}
	if err := errors.Join(t.close(), syncFolder(filepath.Dir(target))); err != nil {
		return cannotWrite("%s has the new content, but it may not last through a power cut: %w", path, err)
	}
	return nil
}

// replace puts the draft of a file that is no set in the place that path leads to.
func (t *draft) replace(path string) error {
	defer lockFolder(filepath.Dir(path)).unlock()
	var past undo
	defer past.forget()
	err := past.hideManifests(map[string]string{filepath.Join(filepath.Dir(path), filepath.Base(path)): t.hex(), t.target: t.hex()}, "")
	if err != nil {
		return past.restored(cannotCreate("replace %s: %w", path, err))
	}
	if err := t.publish(); err != nil {
		return past.restored(cannotCreate("put %s in its place: %w%s", path, err, renameAdvice(err)))
	}
	return nil
}

// renameAdvice is for a file that is a mount of its own: nothing can take its place.
func renameAdvice(err error) string {
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) {
		return ": it is a mount of its own; mount its folder instead"
	}
	return ""
}

// maxLinks bounds a chain of links to a file that is not there.
const maxLinks = 40

// goalOf is where a link leads to, also if nothing is there yet.
func goalOf(path string) (string, error) {
	for range maxLinks {
		// The folder may be a link itself, and .. is then another one: nothing is cleaned.
		dir, base := filepath.Split(path)
		dir, err := filepath.EvalSymlinks(cmp.Or(dir, "."))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, base)
		goal, notALink := os.Readlink(path)
		if notALink != nil {
			return path, nil //nolint:nilerr // it is no link, or nothing
		}
		if path = goal; !filepath.IsAbs(goal) {
			path = dir + string(filepath.Separator) + goal
		}
	}
	return "", syscall.ELOOP
}

// resolve follows links and returns the mode that the file is to have: the one it has,
// so that a file for few eyes stays one, or 0644.
func resolve(path string) (string, fs.FileMode, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, 0o644, nil
	}
	if err != nil {
		return "", 0, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if path, err = goalOf(path); err != nil {
			return "", 0, err
		}
		info, err = os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, 0o644, nil
		}
		if err != nil {
			return "", 0, err
		}
	}
	if info.IsDir() {
		return "", 0, errors.New("it is a folder")
	}
	return path, info.Mode(), nil
}

func writeDevice(path string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return cannotCreate("open %s: %w", path, err)
	}
	if err := Write(file, write); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return cannotWrite("close %s: %w", path, err)
	}
	return nil
}

// draft is a file that is being written beside its place, or one without a name on its
// way into a bucket, which nobody else can read.
type draft struct {
	target string
	mode   fs.FileMode
	file   *os.File
	sum    hash.Hash
	bytes  int64
	hidden bool // it has no name
}

// beginHidden opens a draft that has no name: folders for temporary files belong to all.
func beginHidden(dir, target string) (*draft, error) {
	if err := step("create " + filepath.Base(target)); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, "billing-export-")
	if err != nil {
		return nil, err
	}
	t := &draft{target: target, file: file, sum: sha256.New(), hidden: true}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, err
	}
	return t, nil
}

// begin opens a draft beside target. Its owner holds a lock on it, so that what a
// killed process left can be told from what another one is writing.
func begin(target string, mode fs.FileMode) (*draft, error) {
	for range maxTries {
		if err := step("create " + filepath.Base(target)); err != nil {
			return nil, err
		}
		file, err := os.CreateTemp(filepath.Dir(target), draftPrefix(target)+"*"+draftSuffix)
		if err != nil {
			return nil, err
		}
		t := &draft{target: target, mode: mode, file: file, sum: sha256.New()}
		if lockFile(file) != lockTaken && isAt(file) {
			return t, nil
		}
		// It was swept away before it was locked.
		if err := t.discard(); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("other processes keep removing what is begun")
}

// maxTries bounds how often something is begun again because another process was at it.
const maxTries = 10

func isAt(file *os.File) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(file.Name())
	return err == nil && os.SameFile(open, there)
}

// Write writes to the draft and keeps the sum of what was written.
func (t *draft) Write(p []byte) (int, error) {
	if err := step("write " + filepath.Base(t.target)); err != nil {
		return 0, cannotWrite("write %s: %w", t.target, err)
	}
	n, err := t.file.Write(p)
	t.sum.Write(p[:n])
	t.bytes += int64(n)
	if err != nil {
		return n, cannotWrite("write %s: %w", t.target, unwrapPath(err))
	}
	return n, nil
}

// unwrapPath takes the draft's name out of an error: nobody knows it.
func unwrapPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// fill writes, and waits until it is on disk.
func (t *draft) fill(write func(io.Writer) error) error {
	buf := bufio.NewWriterSize(t, 256<<10)
	if err := write(buf); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	if t.hidden {
		return nil
	}
	keepOwner(t.file, t.target)
	for _, do := range []func() error{
		func() error { return t.file.Chmod(t.mode.Perm()) }, func() error { return fsync(t.file, filepath.Base(t.target)) },
	} {
		if err := do(); err != nil {
			return cannotWrite("write %s: %w", t.target, unwrapPath(err))
		}
	}
	return nil
}

// hex is the SHA-256 of what was written.
func (t *draft) hex() string { return fmt.Sprintf("%x", t.sum.Sum(nil)) }

// publish puts the draft in its place; the lock is held until close.
func (t *draft) publish() error {
	if err := step("rename " + filepath.Base(t.target)); err != nil {
		return err
	}
	err := os.Rename(t.file.Name(), t.target)
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}

func (t *draft) close() error { return t.file.Close() }

// discard removes the draft. It is closed after it is gone, so that nobody sweeps it.
func (t *draft) discard() error {
	if t.hidden {
		return t.file.Close()
	}
	err := os.Remove(t.file.Name())
	t.file.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was begun: %w", err)
	}
	return nil
}

// fsync makes what was written to a file, or renamed in a folder, last through a power cut.
func fsync(file *os.File, name string) error {
	if err := step("sync " + name); err != nil {
		return err
	}
	return flush(file)
}

// syncFolder makes a rename last through a power cut, where folders can be synced.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = fsync(d, "folder")
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
