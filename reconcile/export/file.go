package export

import (
	"bufio"
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
	if err != nil {
		err = cannotWrite("write the output: %w", err)
	}
	return n, err
}

// WriteFile puts what write writes into the place of path. It is written beside it
// under a name with a dot, and takes its place when it is safe on disk; after a
// failure the old file is as it was. A link is followed, a device or a pipe is written
// to as it is. An *Error says what could not be written.
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
	if err := t.publish(); err != nil {
		return errors.Join(cannotCreate("put %s in its place: %w%s", path, err, renameAdvice(err)), t.discard())
	}
	if err := errors.Join(t.close(), syncFolder(filepath.Dir(target))); err != nil {
		return cannotWrite("%s has the new content, but it may not last through a power cut: %w", path, err)
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
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", 0, err
		}
		if info, err = os.Stat(path); err != nil {
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

// draft is a file that is being written beside its place.
type draft struct {
	target string
	mode   fs.FileMode
	file   *os.File
	sum    hash.Hash
	bytes  int64
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
	for _, do := range []func() error{
		func() error { return t.file.Chmod(t.mode.Perm()) },
		func() error { return step("sync " + filepath.Base(t.target)) }, t.file.Sync,
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
	err := os.Remove(t.file.Name())
	t.file.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was begun: %w", err)
	}
	return nil
}

// syncFolder makes a rename last through a power cut, where folders can be synced.
func syncFolder(dir string) error {
	if err := step("sync folder"); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
