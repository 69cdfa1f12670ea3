-- +goose Up

-- The day that a file of invoices names, as it stands there: a date without a time and
-- so without a zone. It tells last month's file from this month's; no charge rests on it.
ALTER TABLE billing.invoices ADD COLUMN invoice_date date;
