package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxInMemory bounds what is kept of a stream in memory; more goes to a file.
const maxInMemory = 16 << 20

// input is a file that can be read from its beginning again: a transaction may
// have to be repeated.
type input struct {
	name string // as messages show it
	io.ReadSeeker
	close func()
}

// openInput opens a file to read, or stdin for -. A stream is read to its end
// first, so that no transaction waits for whoever writes it.
func (a *app) openInput(path string) (*input, error) {
	switch path {
	case "":
		return nil, usagef("--file is missing: type the file's name, or - for stdin")
	case "-":
		return keepStream("stdin", a.in)
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("--file %s: there is no such file", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		file.Close()
		return nil, outputError{error: fmt.Errorf("look at %s: %w", path, err)}
	case info.IsDir():
		file.Close()
		return nil, usagef("--file %s: is a folder", path)
	case info.Mode().IsRegular():
		return &input{name: path, ReadSeeker: file, close: func() { file.Close() }}, nil
	}
	defer file.Close()
	return keepStream(path, file)
}

// keepStream reads a stream to its end, a long one into a file without a name.
func keepStream(name string, r io.Reader) (*input, error) {
	head, err := io.ReadAll(io.LimitReader(r, maxInMemory))
	if err != nil {
		return nil, outputError{error: fmt.Errorf("read %s: %w", name, err)}
	}
	if len(head) < maxInMemory {
		return &input{name: name, ReadSeeker: bytes.NewReader(head), close: func() {}}, nil
	}
	file, err := os.CreateTemp("", "billing-import-")
	if err != nil {
		return nil, outputError{fmt.Errorf("keep %s in a temporary file: %w", name, err), true}
	}
	in := &input{name: name, ReadSeeker: file, close: func() { file.Close() }}
	if err = os.Remove(file.Name()); err == nil {
		_, err = io.Copy(file, io.MultiReader(bytes.NewReader(head), r))
	}
	if err != nil {
		in.close()
		return nil, outputError{error: fmt.Errorf("keep %s in a temporary file: %w", name, err)}
	}
	return in, nil
}

// sink marks the errors of a writer as failures of the output, so that they are
// told from failures of what is written.
type sink struct{ io.Writer }

func (s sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = outputError{error: fmt.Errorf("write the output: %w", err)}
	}
	return n, err
}

// writeOutput writes to stdout for -, or to a file that appears whole or not at
// all.
func (a *app) writeOutput(path string, write func(io.Writer) error) error {
	if path == "-" {
		return writeBuffered(a.out, write)
	}
	return writeFile(path, write)
}

func writeBuffered(w io.Writer, write func(io.Writer) error) error {
	buf := bufio.NewWriterSize(sink{w}, 64<<10)
	if err := write(buf); err != nil {
		return err
	}
	return buf.Flush()
}

// writeFile puts what write writes into the place of path. It is written beside
// it under a name with a dot, and takes its place when it is safe on disk; after
// a failure the old file is as it was. A link is followed, a device or a pipe is
// written to as it is. An *outputError says what could not be written.
func writeFile(path string, write func(io.Writer) error) error {
	target, mode, err := resolveTarget(path)
	if err != nil {
		return outputError{fmt.Errorf("create %s: %w", path, err), true}
	}
	if !mode.IsRegular() {
		return writeDevice(target, write)
	}
	dir := filepath.Dir(target)
	file, err := os.CreateTemp(dir, ".billing-*.tmp")
	if err != nil {
		return outputError{fmt.Errorf("create %s: %w", path, err), true}
	}
	if err := fill(file, mode, write); err != nil {
		file.Close()
		return errors.Join(err, removeLitter(file.Name()))
	}
	if err := os.Rename(file.Name(), target); err != nil {
		err = outputError{fmt.Errorf("put %s in its place: %w", path, err), true}
		return errors.Join(err, removeLitter(file.Name()))
	}
	if err := syncDir(dir); err != nil {
		return outputError{error: fmt.Errorf("write %s: %w", path, err)}
	}
	return nil
}

// resolveTarget follows links and returns the mode that the file is to have: the
// one it has, so that a file for few eyes stays one, or 0644.
func resolveTarget(path string) (string, fs.FileMode, error) {
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
		return outputError{fmt.Errorf("open %s: %w", path, err), true}
	}
	if err := writeBuffered(file, write); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return outputError{error: fmt.Errorf("close %s: %w", path, err)}
	}
	return nil
}

// fill writes, and waits until it is on disk.
func fill(file *os.File, mode fs.FileMode, write func(io.Writer) error) error {
	if err := writeBuffered(file, write); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return file.Chmod(mode.Perm()) }, file.Sync, file.Close,
	} {
		if err := step(); err != nil {
			return outputError{error: fmt.Errorf("write the output: %w", err)}
		}
	}
	return nil
}

func removeLitter(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was begun: %w", err)
	}
	return nil
}

// syncDir makes a rename last through a power cut, where folders can be synced.
func syncDir(dir string) error {
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
