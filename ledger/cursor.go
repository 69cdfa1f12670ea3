package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// cursorRows is how many rows are fetched at once.
const cursorRows = 2000

// Cursor reads the rows of one statement a few at a time, so that memory stays
// flat. Several may be read side by side in one transaction, and end with it.
type Cursor[T any] struct {
	tx     pgx.Tx
	name   string
	buffer []T
	next   int
	done   bool
}

// openCursor declares a cursor; the statement has %s where its name belongs.
func openCursor[T any](ctx context.Context, tx pgx.Tx, name, declare string, args ...any) (*Cursor[T], error) {
	if _, err := tx.Exec(ctx, sqlWholeCursor); err != nil {
		return nil, err
	}
	name = pgx.Identifier{name}.Sanitize()
	// DECLARE takes no parameters in the extended protocol.
	_, err := tx.Exec(ctx, fmt.Sprintf(declare, name), append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	return &Cursor[T]{tx: tx, name: name}, err
}

// Peek returns the next row without taking it, nil at the end.
func (c *Cursor[T]) Peek(ctx context.Context) (*T, error) {
	if c.next < len(c.buffer) {
		return &c.buffer[c.next], nil
	}
	if c.done {
		return nil, nil
	}
	rows, _ := c.tx.Query(ctx, fmt.Sprintf("FETCH FORWARD %d FROM %s", cursorRows, c.name))
	fetched, err := pgx.AppendRows(c.buffer[:0], rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("read on: %w", err)
	}
	c.buffer, c.next = fetched, 0
	if len(fetched) == 0 {
		c.done = true
		return nil, nil
	}
	return &c.buffer[0], nil
}

// Take takes the row that Peek returned.
func (c *Cursor[T]) Take() { c.next++ }

// Close closes the cursor.
func (c *Cursor[T]) Close(ctx context.Context) error {
	if _, err := c.tx.Exec(ctx, "CLOSE "+c.name); err != nil {
		return fmt.Errorf("close a cursor: %w", err)
	}
	return nil
}
