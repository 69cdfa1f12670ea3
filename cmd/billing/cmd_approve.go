package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
)

const approveHelp = `Lets a run go on that needs an approval (BILLING_REQUIRE_APPROVAL), or whose plan
is out of the ordinary on purpose. What is approved is a plan: who pays how much. A
changed card does not change it; a changed amount, a new or a missing account does.

Example:
   billing preview --period 2026-10            # prints the plan
   billing approve --period 2026-10 --plan cbf690ce28613c1d --by anna

Exit codes: 0 approved   3 the plan is another one by now   64 usage
   69 Postgres unreachable   78 configuration`

func (a *app) approveCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "approve", Usage: "agree with a plan, so that it may be charged", Description: approveHelp,
		Flags: []cli.Flag{
			periodFlag(), &cli.StringFlag{Name: "plan", Usage: "the plan, as preview prints it"},
			&cli.StringFlag{Name: "by", Usage: "who agrees; must be named", EnvVars: []string{"BILLING_BY"}}, whyFlag(), dryRunFlag(),
		},
	}, approve)
}

func approve(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, period, err := jobAndPeriodOf(c)
	if err != nil {
		return nil, err
	}
	plan, by := strings.TrimSpace(c.String("plan")), strings.TrimSpace(c.String("by"))
	switch {
	case plan == "":
		return nil, usagef("--plan is missing: type what billing preview --period %s prints", period)
	case by == "":
		return nil, usagef("--by is missing: who agrees?")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(job), Period: string(period), Plan: plan}
	if c.Bool("dry-run") {
		p, err := billing.CheckPlan(ctx, pool, job, period, plan)
		if err != nil {
			return out, err
		}
		return out, a.emit(fmt.Sprintf("plan %s of %s would be approved: %s; nothing was changed (dry run)\n", plan, period, sumsText(p)))
	}
	isNew, p, err := billing.Approve(ctx, pool, job, period, plan, by, strings.TrimSpace(c.String("why")))
	if err != nil {
		return out, err
	}
	out.addSums(p.Sums)
	text := fmt.Sprintf("plan %s of %s is approved by %s: %s, %s\nnext: billing run --period %s\n", plan, period, by, plural(p.Rows, "invoice", "invoices"), sumsText(p), period)
	if !isNew {
		text = fmt.Sprintf("plan %s of %s was approved before\nnext: billing run --period %s\n", plan, period, period)
	}
	return out, a.emit(text)
}

// sumsText is what a plan charges, in a line.
func sumsText(p billing.Plan) string {
	sums := p.ToCharge()
	var list []string
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, sums[currency]+" "+currency)
	}
	return strings.Join(list, ", ")
}
