package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
)

const (
	// maxPeriodAge is how long ago a derived period may have ended. A moment
	// that lies later in the month more likely means the present month, and a
	// person must say so.
	maxPeriodAge = 27 * 24 * time.Hour
	// maxJobAge is how far the minutes in a Kubernetes job's name may lie from
	// now; anything else there is no time.
	maxJobAge = 35 * 24 * time.Hour
)

// A CronJob names its jobs by the scheduled time in minutes since 1970. The
// annotation with the time is on the job, not on its pods.
var cronJobName = regexp.MustCompile(`-([0-9]{8})$`)

// derivePeriod names the month before the moment for which this run was
// scheduled, or before now.
func derivePeriod(ctx context.Context, c *cli.Context, q ledger.Querier, loc *time.Location) (ledger.Period, error) {
	now, err := ledger.Now(ctx, q)
	if err != nil {
		return "", err
	}
	at, from, err := scheduledAt(c.String("scheduled-at"), os.Getenv("BILLING_K8S_JOB_NAME"), now)
	if err != nil {
		return "", err
	}
	period := ledger.PeriodOf(at, loc).Previous()
	if age := at.Sub(period.End(loc)); age > maxPeriodAge {
		return "", usagef("%s (%s) lies %d days after the end of %s: say which month is meant, such as billing run --period %s",
			from, at.In(loc).Format(time.RFC3339), int(age.Hours()/24), period, period)
	}
	return period, nil
}

func scheduledAt(text, jobName string, now time.Time) (at time.Time, from string, err error) {
	if text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return at, "", usageError{fmt.Errorf("--scheduled-at %q: want a time such as 2026-11-01T00:05:00Z", text)}
		}
		return at, "the scheduled time", nil
	}
	if jobName == "" {
		return now, "now", nil
	}
	if m := cronJobName.FindStringSubmatch(jobName); m != nil {
		minutes, _ := strconv.ParseInt(m[1], 10, 64)
		if at := time.Unix(minutes*60, 0); at.Sub(now).Abs() <= maxJobAge {
			return at, "the time in the job's name", nil
		}
	}
	return at, "", usagef("BILLING_K8S_JOB_NAME %q does not end in the minutes of a recent time: say which month is meant with --period", jobName)
}
