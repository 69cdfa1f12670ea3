package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/chargeonce/billing/reconcile/export"
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

// writeOutput writes to stdout for -, or to a file that appears whole or not at
// all.
func (a *app) writeOutput(path string, write func(io.Writer) error) error {
	if path == "-" {
		return export.Write(a.out, write)
	}
	return export.WriteFile(path, write)
}
