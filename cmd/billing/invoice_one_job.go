package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// ofOneJob refuses a month whose usage another job has invoiced: it is the first thing of
// the transaction.
func ofOneJob(ctx context.Context, tx pgx.Tx, req ledger.UsageInvoicing) error {
	other, err := ledger.OtherJobInvoiced(ctx, tx, req.Job, req.Period)
	if err != nil || other == "" {
		return err
	}
	return configError{
		fmt.Errorf("usage of %s became invoices of the job %s: %s has the same usage and the same base fees, and they would be billed twice", req.Period, other, req.Job),
		fmt.Sprintf("billing invoice --job %s --period %s", other, req.Period),
	}
}
