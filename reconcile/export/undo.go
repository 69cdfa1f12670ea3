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
	// kept is a second name of the old file, locked against sweeping; nil if there was
	// none. Where there are no second names, nothing is restored.
	kept *os.File
	name string
	lost bool
}

// keep gives the old file a second name.
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
	p.lost = os.Link(target, p.name) != nil
	u.past = append(u.past, p)
	return nil
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
		case p.lost:
			err = fmt.Errorf("%s is of the new set already: export again", p.target)
		default:
			// Both names of one file would stay, if nothing had taken its place.
			if err = os.Rename(p.name, p.target); err == nil {
				_ = os.Remove(p.name)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
