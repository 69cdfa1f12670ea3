// Package export writes the ledger to files and to object storage, so that a reader
// never meets a part of one. It knows how files and formats are written, and what a
// journal is; what is in the ledger it is given, row by row.
package export
