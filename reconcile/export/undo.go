package export

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// undo remembers what files were before a set took their places.
type undo struct{ past []pastFile }

// pastFile is a file that was there, or was not.
type pastFile struct {
	target string
	// kept is the old file under a second name, or a copy of it where there are no second
	// names; locked against sweeping, nil if there was no file.
	kept *os.File
	name string
}

// Linux refuses a second name of others' files. Tests make both fail.
var link, rename = os.Link, os.Rename

// keep gives the old file a second name, or copies it. An error means that it could not
// be put back, so it must not be replaced.
func (u *undo) keep(target string) error {
	if err := step("keep " + filepath.Base(target)); err != nil {
		return err
	}
	file, err := os.Open(target)
	if errors.Is(err, fs.ErrNotExist) {
		if u.knows(target) {
			return nil // it was hidden
		}
		u.past = append(u.past, pastFile{target: target})
		return nil
	}
	if err != nil {
		return err
	}
	lockFile(file)
	p := pastFile{target: target, kept: file, name: fmt.Sprintf("%s%d%s", filepath.Join(filepath.Dir(target), draftPrefix(target)), rand.Uint64(), draftSuffix)}
	if link(target, p.name) != nil {
		p.kept, err = copyOf(file, p.name)
		file.Close()
		if err != nil {
			return fmt.Errorf("keep a copy of the old one: %w", unwrapPath(err))
		}
	}
	u.past = append(u.past, p)
	return nil
}

// copyOf copies a file to a new name, safe on disk, with its rights.
func copyOf(from *os.File, name string) (*os.File, error) {
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	lockFile(file)
	keepOwner(file, from.Name())
	for _, do := range []func() error{
		func() error { _, err := io.Copy(file, from); return err },
		func() error { return file.Chmod(info.Mode().Perm()) }, func() error { return fsync(file, filepath.Base(from.Name())) },
	} {
		if err := do(); err != nil {
			return nil, errors.Join(err, os.Remove(name), file.Close())
		}
	}
	return file, nil
}

func (u *undo) knows(target string) bool {
	for _, p := range u.past {
		if p.target == target {
			return true
		}
	}
	return false
}

// hide takes a file away, for as long as what it says is not true.
func (u *undo) hide(target string) error {
	if err := u.keep(target); err != nil {
		return err
	}
	if err := step("hide " + filepath.Base(target)); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncFolder(filepath.Dir(target))
}

// restore puts everything back, the last change first.
func (u *undo) restore() error {
	var errs []error
	for i := len(u.past) - 1; i >= 0; i-- {
		p := u.past[i]
		var err error
		switch {
		case p.kept == nil:
			if err = os.Remove(p.target); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		default:
			// Both names of one file would stay, if nothing had taken its place.
			if err = rename(p.name, p.target); err == nil {
				_ = os.Remove(p.name)
			}
		}
		if err != nil {
			err = fmt.Errorf("%s is of the new set, and the old one could not be put back: %w", p.target, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// restored puts everything back after an error, and says so if that failed, too.
func (u *undo) restored(err error) error {
	lost := u.restore()
	if lost == nil {
		return err
	}
	both := &Error{Trouble: CannotWrite, Hint: "the folder has files of two sets and no manifest: export again", err: errors.Join(err, lost)}
	if e, ok := errors.AsType[*Error](err); ok {
		both.Trouble = e.Trouble
	}
	return both
}

// forget lets the old files go.
func (u *undo) forget() {
	for _, p := range u.past {
		if p.kept != nil {
			_ = os.Remove(p.name)
			p.kept.Close()
		}
	}
}

// hashFile is the SHA-256 of a file, in hex.
func hashFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}
