package export

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Content is what a body came to.
type Content struct {
	Rows int64
	Sums []Sum
}

// Set is some files and their manifest, which appear together or not at all, in a folder
// or in a bucket. Everything is written and safe on disk before the first of them
// appears; in the end Discard removes what did not.
type Set struct {
	dir    string  // where drafts are written
	bucket *Bucket // nil for a folder
	byHash bool
	drafts []*draft
	files  []File
}

// NewFolderSet begins a set in a folder. byHash puts the content's hash into names, so
// that no file ever changes.
func NewFolderSet(dir string, byHash bool) *Set { return &Set{dir: dir, byHash: byHash} }

// Add writes a file of the set. Only Publish shows it.
func (s *Set) Add(name string, write func(w io.Writer) (Content, error)) error {
	t, err := s.begin(name)
	if err != nil {
		return err
	}
	var content Content
	err = t.fill(func(w io.Writer) (err error) {
		content, err = write(w)
		return err
	})
	if err != nil {
		return err
	}
	if s.byHash {
		if name, err = s.rename(t, name); err != nil {
			return err
		}
	}
	s.files = append(s.files, File{Name: name, Rows: content.Rows, Bytes: t.bytes, SHA256: t.hex(), Sums: content.Sums})
	return nil
}

// begin opens the draft of a member.
func (s *Set) begin(name string) (*draft, error) {
	if s.bucket != nil {
		t, err := beginHidden(s.dir, name)
		if err != nil {
			return nil, cannotCreate("keep %s in %s until it is sent: %w", name, s.dir, unwrapPath(err))
		}
		s.drafts = append(s.drafts, t)
		return t, nil
	}
	target, mode, err := resolve(filepath.Join(s.dir, name))
	if err == nil && !mode.IsRegular() {
		err = errors.New("it is no file")
	}
	if err != nil {
		return nil, cannotCreate("create %s: %w", s.Show(name), err)
	}
	sweep(target)
	t, err := begin(target, mode)
	if err != nil {
		return nil, cannotCreate("create %s: %w", s.Show(name), unwrapPath(err))
	}
	s.drafts = append(s.drafts, t)
	return t, nil
}

// hashInName is how much of the hash names have: 16 digits of 64 bits.
const hashInName = 16

// rename gives a draft the name of its content.
func (s *Set) rename(t *draft, name string) (string, error) {
	base, ext, _ := strings.Cut(name, ".")
	name = base + "." + t.hex()[:hashInName] + "." + ext
	if s.bucket != nil {
		return name, nil
	}
	target, mode, err := resolve(filepath.Join(s.dir, name))
	if err == nil && !mode.IsRegular() {
		err = errors.New("it is no file")
	}
	if err != nil {
		return "", cannotCreate("create %s: %w", s.Show(name), err)
	}
	t.target = target
	return name, nil
}

// Files are the members that were added.
func (s *Set) Files() []File { return s.files }

// Show is the whole name of a member, as messages have it.
func (s *Set) Show(name string) string {
	if s.bucket != nil {
		return "s3://" + path.Join(s.bucket.name, s.bucket.prefix, name)
	}
	return filepath.Join(s.dir, name)
}

// Publish shows the set, the manifest last. After an error a folder is as it was.
func (s *Set) Publish(ctx context.Context, name string, m Manifest) (File, error) {
	m.Files = s.files
	err := s.Add(name, func(w io.Writer) (Content, error) { return Content{}, m.write(w) })
	if err != nil {
		return File{}, err
	}
	manifest := s.files[len(s.files)-1]
	s.files = s.files[:len(s.files)-1]
	if s.bucket != nil {
		return manifest, s.bucket.publish(ctx, s.drafts, append(m.Files, manifest))
	}
	if err := ctx.Err(); err != nil {
		return manifest, err
	}
	return manifest, s.publishFolder()
}

// Discard removes the drafts that were not published.
func (s *Set) Discard() error {
	var errs []error
	for _, t := range s.drafts {
		errs = append(errs, t.discard())
	}
	s.drafts = nil
	return errors.Join(errs...)
}

// publishFolder puts all drafts in their places. Who reads the manifest, then the files
// that it names, never meets two sets: an old manifest that says something else is gone
// before the first file changes.
func (s *Set) publishFolder() error {
	defer lockFolder(s.dir).unlock()
	var past undo
	defer past.forget()
	if err := s.replace(&past); err != nil {
		return past.restored(err)
	}
	err := s.sync()
	s.drafts = nil
	if err != nil {
		return cannotWrite("%s has the new files, but they may not last through a power cut: %w", s.dir, err)
	}
	return nil
}

// sync makes what was renamed last, also where a link led elsewhere.
func (s *Set) sync() error {
	synced := map[string]bool{}
	for _, t := range s.drafts {
		dir := filepath.Dir(t.target)
		if synced[dir] {
			continue
		}
		synced[dir] = true
		if err := syncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) replace(past *undo) error {
	last := len(s.drafts) - 1
	manifest := s.drafts[last]
	if !manifest.isThere() {
		if err := past.hide(manifest.target); err != nil {
			return cannotCreate("replace %s: %w", manifest.target, unwrapPath(err))
		}
	}
	if err := s.hideOthers(past); err != nil {
		return cannotCreate("replace a file in %s: %w", s.dir, err)
	}
	for i, t := range s.drafts {
		if s.byHash && t.isThere() {
			continue
		}
		if i == last {
			if err := s.sync(); err != nil {
				return cannotWrite("write %s: %w", s.dir, err)
			}
		}
		if err := past.keep(t.target); err != nil {
			return cannotCreate("replace %s: %w", t.target, unwrapPath(err))
		}
		if err := t.publish(); err != nil {
			return cannotCreate("put %s in its place: %w%s", t.target, err, renameAdvice(err))
		}
	}
	var errs []error
	for _, t := range s.drafts {
		if s.byHash {
			errs = append(errs, t.discard())
			continue
		}
		errs = append(errs, t.close())
	}
	if err := errors.Join(errs...); err != nil {
		return cannotWrite("write %s: %w", s.dir, err)
	}
	return nil
}

// hideOthers takes away the manifests of other sets that a file was in, if it changes.
func (s *Set) hideOthers(past *undo) error {
	if s.byHash {
		return nil // no file ever changes
	}
	hashes := map[string]string{}
	for i, t := range s.drafts {
		hashes[t.target] = t.hex()
		if i < len(s.files) {
			hashes[filepath.Join(s.dir, s.files[i].Name)] = t.hex()
		}
	}
	return past.hideManifests(hashes, s.drafts[len(s.drafts)-1].target)
}

// isThere reports whether the target has the draft's content already.
func (t *draft) isThere() bool {
	there, err := hashFile(t.target)
	return err == nil && there == t.hex()
}

// CheckFolder refuses what is no folder, before anything is read.
func CheckFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return cannotCreate("write into %s: %w", dir, unwrapPath(err))
	}
	if !info.IsDir() {
		return cannotCreate("write into %s: it is no folder", dir)
	}
	return nil
}
