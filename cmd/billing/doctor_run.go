package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/reconcile/export"
)

// stripeEndpointRate is Stripe's default for one endpoint, a second.
const stripeEndpointRate = gateway.DefaultReadRate

// checkRate compares the pace with what Stripe allows.
func (d *doctor) checkRate(context.Context) finding {
	const todo = "BILLING_RATE=25, unless Stripe raised the limit for this account"
	const limit = "Stripe allows 25 a second for one endpoint, and 100 in all (25 in test mode), unless it raised that"
	rate, reads := d.run.Float64("rate"), d.run.Float64("read-rate")
	switch {
	case slices.Contains(d.unread, "rate"), slices.Contains(d.unread, "read-rate"):
		return worth("", notChecked+"the setting can't be read")
	case rate == 0:
		return worth(todo, "charges are sent without a limit; %s", limit)
	case rate > stripeEndpointRate:
		return worth(todo, "%v charges a second; %s", rate, limit)
	case reads == 0 || reads > stripeEndpointRate:
		return worth("BILLING_READ_RATE=25, unless Stripe raised the limit for this account", "%v questions a second (0 is no limit); %s", reads, limit)
	}
	return fine("%v charges and %v questions a second; Stripe allows 25 of each", rate, reads)
}

// checkFiles looks at the folders that commands write to, and writes nothing.
func (d *doctor) checkFiles(context.Context) finding {
	if path := os.Getenv("BILLING_OUTPUT"); path != "" && path != "-" && !export.IsBucket(path) {
		dir := filepath.Dir(path) // of a path with / at its end, that itself
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			dir = path
		}
		if err := mayWriteInto(dir); err != nil {
			return broken(outputError{error: fmt.Errorf("BILLING_OUTPUT: %w", err), creating: true}, "")
		}
	}
	if path := d.run.String("metrics-file"); path != "" {
		if err := mayWriteInto(filepath.Dir(path)); err != nil {
			return worth("make the folder, writable for this user", "the metrics can't be written, and a run goes on without: %v", err)
		}
	}
	return fine("the folders that are set can be written to")
}

// mayWriteInto asks the system, without a file.
func mayWriteInto(folder string) error {
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", folder)
	}
	const writeAndEnter = 0x2 | 0x1
	if err := syscall.Access(folder, writeAndEnter); err != nil {
		return fmt.Errorf("write into %s: %w", folder, err)
	}
	return nil
}

// checkCheckIn looks at the form only: any request to a monitor would be a lie.
func (d *doctor) checkCheckIn(context.Context) finding {
	watch, err := d.a.monitorOf(d.run)
	if err == nil {
		_, err = d.a.metricsOf(d.run, "run", d.job)
	}
	var config configError
	switch {
	case errors.As(err, &config):
		return broken(err, "")
	case err != nil:
		return broken(err, "mend the variable BILLING_… of that name")
	case watch == nil:
		return fine("no monitor is set")
	}
	return fine("%s is told (not tried: a ping would be a lie)", watch.kind)
}
