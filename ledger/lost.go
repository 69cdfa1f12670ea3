package ledger

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// isConnectionLost reports a connection that ended under a query.
func isConnectionLost(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		err != nil && strings.Contains(err.Error(), "conn closed")
}
