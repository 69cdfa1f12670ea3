package export

import "fmt"

// Trouble says at what an output failed, which decides the exit code.
type Trouble int

// The kinds of trouble.
const (
	// CannotCreate is a place that can't be written to, or has something else.
	CannotCreate Trouble = iota
	// CannotWrite is one that failed on the way, such as a full disk.
	CannotWrite
	// NotAllowed is a key that object storage refuses.
	NotAllowed
	// ReaderGone is a pipe of which nobody reads any more.
	ReaderGone
	// Unfit is a content that the format can't hold.
	Unfit
)

// Error is an output that could not be written. What was there before is as it was,
// unless the text says otherwise.
type Error struct {
	Trouble Trouble
	// Hint says what to do; empty where the text is enough.
	Hint string
	err  error
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns what the operating system or the storage said.
func (e *Error) Unwrap() error { return e.err }

func cannotCreate(format string, args ...any) error {
	return &Error{Trouble: CannotCreate, err: fmt.Errorf(format, args...)}
}

func cannotWrite(format string, args ...any) error {
	return &Error{Trouble: CannotWrite, err: fmt.Errorf(format, args...)}
}
