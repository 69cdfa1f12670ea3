package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

const resolveHelp = `Says what becomes of a finding. Who and why are kept; a resolved finding comes back
only if what was seen changes.

   --as accept    it is right as it is. The charge of a payment that was in review is
                  paid by it
   --as release   the payment is not this charge's. The charge is held, and billing
                  release charges it
   --as void      the charge that was in review is withdrawn
   --as refund    the payment is given back at Stripe: all that is left of it, or
                  --amount. Without --yes it is only shown what would be sent

The payment that stands for a debt is never the one that is given back: a duplicate
names the second. A refund is recorded before it is sent, under a key made from the
finding and its payment; if its outcome is not known, the same command goes on with it.
A charge in review whose payment is given back whole is held. A payment too many stays
a finding until it is given back whole.

Example:
   billing resolve --finding 12 --as accept --why "agreed with the customer"
   billing resolve --finding 12 --finding 13 --as refund --why "paid twice" --yes
   billing resolve --period 2026-10 --account 4182 --as void --why "paid by transfer"

Exit codes: 0 resolved, or shown   4 the finding stays open: Stripe refused the refund,
   or shows none   64 usage, or it can't be resolved like this (nothing was changed)
   69 unreachable   75 the outcome of a refund is not known: run it again, or a run is
   recording   77 refused   78 configuration`

func (a *app) resolveCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "resolve", Usage: "say what becomes of a finding", Description: resolveHelp,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "finding", Usage: "the finding's number; may be given more than once"},
			periodFlag(),
			&cli.StringFlag{Name: "account", Usage: "instead of --finding: the account, with --period, where one finding is open"},
			&cli.StringFlag{Name: "as", Usage: "accept, refund, release or void"},
			&cli.StringFlag{Name: "amount", Usage: "how much to refund, in major units of the payment's currency", DefaultText: "all that is left"},
			// Not from the environment: a host that runs the month without asking must
			// not give money back without asking.
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "make the refund"},
			whyFlag(), byFlag(), dryRunFlag(),
		},
	}, resolve)
}

var resolutions = map[string]ledger.Resolution{
	"accept": ledger.ResolutionAccepted, "refund": ledger.ResolutionRefunded,
	"release": ledger.ResolutionReleased, "void": ledger.ResolutionVoided,
}

// resolving is one command that resolves findings.
type resolving struct {
	a    *app
	c    *cli.Context
	pool *pgxpool.Pool
	job  ledger.Job
	as   ledger.Resolution
	ids  []int64
	out  *result
	r    *reconcile.Resolver
}

// resolveJSON is what it adds to --json.
type resolveJSON struct {
	Resolution string           `json:"resolution"`
	Done       []string         `json:"done"`
	DryRun     bool             `json:"dry_run"`
	Refunds    []refundPlanJSON `json:"refunds,omitempty"`
}

// refundPlanJSON is a refund as it is sent.
type refundPlanJSON struct {
	Finding        int64  `json:"finding"`
	PaymentIntent  string `json:"payment_intent"`
	Amount         string `json:"amount"`
	AmountMinor    int64  `json:"amount_minor"`
	Currency       string `json:"currency"`
	IdempotencyKey string `json:"idempotency_key"`
	Body           string `json:"body"`
}

func resolve(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	s := &resolving{a: a, c: c}
	if err := s.asked(); err != nil {
		return nil, err
	}
	var err error
	if s.pool, err = openLedger(ctx, c); err != nil {
		return nil, err
	}
	defer s.pool.Close()
	s.out = &result{Job: string(s.job), Period: c.String("period")}
	if err := s.find(ctx); err != nil {
		return s.out, err
	}
	s.r = &reconcile.Resolver{
		Pool: s.pool, Job: s.job, Person: personOf(c), Why: strings.TrimSpace(c.String("why")), DryRun: c.Bool("dry-run"), Log: a.log,
	}
	if s.r.Outbox, err = a.openOutbox(ctx, s.pool, s.job, s.r.DryRun); err != nil {
		return s.out, err
	}
	done, err := s.connect(ctx)
	if err != nil {
		return s.out, err
	}
	defer done()
	if s.as == ledger.ResolutionRefunded {
		return s.out, asExit(s.refunds(ctx))
	}
	return s.out, asExit(s.resolve(ctx))
}

// asked reads the flags.
func (s *resolving) asked() (err error) {
	if s.job, err = jobOf(s.c); err != nil {
		return err
	}
	as, known := resolutions[s.c.String("as")]
	s.as = as
	byAccount := s.c.IsSet("account")
	switch {
	case s.c.String("as") == "":
		return usagef("--as is missing: type what becomes of it: accept, refund, release or void")
	case !known:
		return usagef("--as %q: want accept, refund, release or void", s.c.String("as"))
	case strings.TrimSpace(s.c.String("why")) == "":
		return usagef("--why is missing: type the reason; it is kept with the finding")
	case s.c.IsSet("finding") && byAccount:
		return usagef("--finding and --account: take one")
	case !s.c.IsSet("finding") && !byAccount:
		return usagef("--finding is missing: billing findings lists them")
	case byAccount && s.c.String("period") == "":
		return usagef("--account needs --period: which month?")
	case as != ledger.ResolutionRefunded && (s.c.IsSet("amount") || s.c.Bool("yes")):
		return usagef("--amount and --yes are about --as refund")
	case s.c.IsSet("amount") && len(s.c.StringSlice("finding")) > 1:
		return usagef("--amount is about one finding: name one")
	}
	for _, text := range s.c.StringSlice("finding") {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 {
			return usagef("--finding %q: want a number, as billing findings shows it", text)
		}
		if slices.Contains(s.ids, id) {
			return usagef("--finding %d is there twice", id)
		}
		s.ids = append(s.ids, id)
	}
	return nil
}

// find makes sure that the findings exist, and finds the one of an account.
func (s *resolving) find(ctx context.Context) error {
	if len(s.ids) == 0 {
		period, err := periodOf(s.c)
		if err != nil {
			return err
		}
		account := s.c.String("account")
		query := ledger.FindingQuery{Job: s.job, Period: period, Account: account}
		err = ledger.EachFinding(ctx, s.pool, query, func(f ledger.FindingState) error {
			s.ids = append(s.ids, f.ID)
			return nil
		})
		if err == nil && len(s.ids) != 1 {
			err = usagef("account %s has %s open for %s: name it with --finding; billing findings --period %s --account %s lists them",
				clean(account), plural(int64(len(s.ids)), "finding", "findings"), period, period, clean(account))
		}
		return err
	}
	for _, id := range s.ids {
		f, err := ledger.ReadFinding(ctx, s.pool, s.job, id)
		if errors.Is(err, ledger.ErrNotFound) {
			return usagef("there is no finding %d of %s: billing findings lists them", id, s.job)
		}
		if err != nil {
			return err
		}
		if period := s.c.String("period"); s.c.IsSet("period") && period != string(f.Period) {
			return usagef("finding %d is about %s, not %s", id, f.Period, period)
		}
	}
	return nil
}

// connect opens the way to Stripe where it is needed.
func (s *resolving) connect(ctx context.Context) (done func(), err error) {
	needed := false
	for _, id := range s.ids {
		f, err := ledger.ReadFinding(ctx, s.pool, s.job, id)
		if err != nil {
			return nil, err
		}
		needed = needed || reconcile.NeedsStripe(f, s.as)
	}
	if !needed {
		return func() {}, nil
	}
	client, err := openGateway(s.a, 1, 0)
	if err != nil {
		return nil, err
	}
	live := client.Livemode()
	s.out.Livemode = &live
	id, err := pinIdentity(ctx, s.pool, client, !s.moves())
	if err != nil {
		client.Close()
		return nil, err
	}
	s.out.StripeAccount = id.AccountID
	s.r.Finder, s.r.Refunder = client.Finder(), client.Refunder()
	return client.Close, nil
}

// moves reports whether anything is to be changed at all.
func (s *resolving) moves() bool {
	return !s.c.Bool("dry-run") && (s.as != ledger.ResolutionRefunded || s.c.Bool("yes"))
}

// resolve accepts, releases or voids.
func (s *resolving) resolve(ctx context.Context) error {
	done, err := s.r.Resolve(ctx, s.ids, s.as)
	if err != nil {
		return err
	}
	s.out.Details = resolveJSON{Resolution: string(s.as), Done: done, DryRun: !s.moves()}
	return s.tell(ctx, done)
}

// refunds shows or makes refunds. All are planned before the first is made.
func (s *resolving) refunds(ctx context.Context) error {
	details := resolveJSON{Resolution: string(s.as), Done: []string{}, DryRun: !s.moves()}
	var plans []reconcile.RefundPlan
	for _, id := range s.ids {
		p, err := s.r.PlanRefund(ctx, id, s.c.String("amount"))
		if err != nil {
			return err
		}
		plans = append(plans, p)
		details.Refunds = append(details.Refunds, planJSON(&p))
	}
	s.out.Details = details
	if !s.moves() {
		return s.a.emit(s.plansText(plans))
	}
	for i, p := range plans {
		var done string
		var err error
		// One before it may have given back the same payment.
		if i > 0 {
			p, err = s.r.PlanRefund(ctx, s.ids[i], s.c.String("amount"))
			details.Refunds[i] = planJSON(&p)
		}
		if err == nil {
			done, err = s.r.Refund(ctx, p)
		}
		if err != nil {
			_ = s.a.emit(strings.Join(append(details.Done, ""), "\n"))
			return err
		}
		details.Done = append(details.Done, done)
		s.out.Details = details
	}
	return s.tell(ctx, details.Done)
}

func planJSON(p *reconcile.RefundPlan) refundPlanJSON {
	return refundPlanJSON{
		Finding: p.Finding.ID, PaymentIntent: p.Payment.ID, Amount: strings.TrimSuffix(p.Amount(), " "+p.Payment.Currency), AmountMinor: p.Minor,
		Currency: p.Payment.Currency, IdempotencyKey: p.Key, Body: p.Body,
	}
}

// tell says what was done, and what there is to do next.
func (s *resolving) tell(ctx context.Context, done []string) error {
	text := ""
	for _, line := range done {
		text += clean(line) + "\n"
	}
	if !s.moves() {
		return s.a.emit(text + "nothing was changed (dry run)\n")
	}
	var next []string
	for _, id := range s.ids {
		f, err := ledger.ReadFinding(ctx, s.pool, s.job, id)
		if err != nil {
			return err
		}
		step := "billing status --period " + string(f.Period)
		switch {
		case f.Open():
			step = reconcile.NextAbout(f)
		case f.ChargeState == ledger.ChargeHeld:
			if step, err = s.nextHeld(ctx, f); err != nil {
				return err
			}
		}
		for line := range strings.SplitSeq(step, "\n") {
			if !slices.Contains(next, line) {
				next = append(next, line)
			}
		}
	}
	return s.a.emit(text + "next: " + strings.Join(next, "\n      ") + "\n")
}

// nextHeld is what to type about a charge that is held now, and from when: inside its
// window Stripe may still carry out what was sent.
func (s *resolving) nextHeld(ctx context.Context, f ledger.FindingState) (step string, err error) {
	of := fmt.Sprintf("--period %s --account %s --why W", f.Period, reconcile.ShellWord(f.AccountID))
	step = "billing release " + of + "   # charges it"
	err = ledger.InReadTx(ctx, s.pool, func(tx pgx.Tx) error {
		now, err := ledger.Now(ctx, tx)
		if err != nil {
			return err
		}
		h, err := ledger.ReadHistory(ctx, tx, s.job, f.Period, f.AccountID)
		if err != nil || h.Charge.WindowEndsAt == nil {
			return err
		}
		if dead := h.Charge.WindowEndsAt.Add(ledger.RequestDead); dead.After(now) {
			step += "; not before " + dead.UTC().Format("2006-01-02 15:04 UTC")
		}
		return nil
	})
	return step + "\nbilling void " + of + "   # withdraws it", err
}

// asExit gives the errors of resolving their exit codes.
func asExit(err error) error {
	var (
		refused   *reconcile.RefusedError
		undecided *reconcile.UndecidedError
		open      *reconcile.OpenError
		failure   *gateway.Error
	)
	switch {
	case errors.As(err, &refused):
		return usagef("%s", clean(refused.Msg))
	case errors.As(err, &undecided):
		return undecidedError{undecided}
	case errors.As(err, &open):
		return &billing.PersonError{Msg: clean(open.Msg), Hint: open.Hint}
	case errors.Is(err, ledger.ErrResolved):
		return usageError{err}
	case errors.As(err, &failure) && failure.Kind == gateway.KindNotFound:
		return usageError{err}
	}
	return err
}

// undecidedError is a refund whose outcome is not known (exit 75).
type undecidedError struct{ *reconcile.UndecidedError }

// Unwrap makes it one of those that running again goes on with.
func (e undecidedError) Unwrap() error {
	unsettled := &billing.UnsettledError{}
	if e.Until != nil {
		unsettled.Past, unsettled.LookAt = true, e.Until
	}
	return unsettled
}
