package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// The names of the metrics are an interface: alert rules use them.
const (
	metricRunDuration  = "billing_run_duration_seconds"
	metricLastExitCode = "billing_last_exit_code"
	metricRateLimited  = "billing_rate_limited_total"

	metricLastSuccess   = "billing_last_success_timestamp_seconds"
	metricCharges       = "billing_charges"
	metricAmount        = "billing_amount_minor"
	metricUnknown       = "billing_unknown_charges"
	metricOldestPending = "billing_oldest_pending_seconds"
	metricClaimsRefused = "billing_claims_refused_total"
	metricOpenFindings  = "billing_open_findings"
	metricMessages      = "billing_messages"
	metricOldestMessage = "billing_oldest_message_seconds"
)

// commandMetrics are of the command that wrote last, ledgerMetrics are summed from
// the ledger's rows.
var (
	commandMetrics = []string{metricRunDuration, metricLastExitCode, metricRateLimited}
	ledgerMetrics  = []string{
		metricLastSuccess, metricCharges, metricAmount, metricUnknown, metricOldestPending, metricClaimsRefused, metricOpenFindings,
		metricMessages, metricOldestMessage,
	}
)

// Their labels. The name job is Prometheus's own, and Pushgateway refuses it.
const (
	labelJob     = "billing_job"
	labelPeriod  = "period"
	labelCommand = "command"
)

const (
	// measurePatience bounds the reading of the ledger at the end, maxMeasured the
	// periods that are told of.
	measurePatience = 10 * time.Second
	maxMeasured     = 24
	// pushTime is what a Pushgateway may cost.
	pushTime = 3 * time.Second
)

var (
	descRunDuration = prometheus.NewDesc(metricRunDuration,
		"How long the last command took.", []string{labelJob, labelCommand}, nil)
	descLastExitCode = prometheus.NewDesc(metricLastExitCode,
		"The exit code of the last command, as the README lists them.", []string{labelJob, labelCommand}, nil)
	descRateLimited = prometheus.NewDesc(metricRateLimited,
		"How often Stripe answered 429 to the last command.", []string{labelJob, labelCommand}, nil)

	descLastSuccess = prometheus.NewDesc(metricLastSuccess,
		"When a period was last finished, so that the outcome of all its charges is known.", []string{labelJob, labelPeriod}, nil)
	descCharges = prometheus.NewDesc(metricCharges,
		"Charges by state.", []string{labelJob, labelPeriod, "state", "currency"}, nil)
	descAmount = prometheus.NewDesc(metricAmount,
		"Money by state, in the currency's minor units as Stripe counts them, such as cents.", []string{labelJob, labelPeriod, "state", "currency"}, nil)
	descUnknown = prometheus.NewDesc(metricUnknown,
		"Pending charges that were sent and whose answer is not known.", []string{labelJob, labelPeriod}, nil)
	descOldestPending = prometheus.NewDesc(metricOldestPending,
		"How long ago the first of the pending charges was recorded, 0 if none is pending.", []string{labelJob, labelPeriod}, nil)
	descClaimsRefused = prometheus.NewDesc(metricClaimsRefused,
		"Runs that found the period owned by another.", []string{labelJob, labelPeriod}, nil)
	descOpenFindings = prometheus.NewDesc(metricOpenFindings,
		"Findings that are open; those of severity act need a person.", []string{labelJob, labelPeriod, "severity", "kind"}, nil)
	descMessages = prometheus.NewDesc(metricMessages,
		"Messages that were not sent: queued, dead letters, and those without an address.", []string{labelJob, "state"}, nil)
	descOldestMessage = prometheus.NewDesc(metricOldestMessage,
		"How long ago the first of the queued messages was written, 0 if none waits.", []string{labelJob}, nil)
)

// measurements are what a command tells Prometheus when it ends, whatever became of
// it. A nil one tells nothing.
type measurements struct {
	a           *app
	command     string
	job         ledger.Job
	file, push  string
	started     time.Time
	rateLimited func() int64

	exitCode int
	// periods and last are the ledger's, unless it could not be read.
	read     bool
	periods  []ledger.Measures
	messages ledger.MessageMeasures
	last     ledger.Period
	lastDone time.Time
}

// metricsFlags say where to.
func metricsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "metrics-file", Usage: "write metrics for Prometheus here, such as /var/lib/node_exporter/billing.prom", EnvVars: []string{"BILLING_METRICS_FILE"}, Category: "Monitoring"},
		&cli.StringFlag{Name: "pushgateway", Usage: "push the same to a Pushgateway, such as http://pushgateway:9091", EnvVars: []string{"BILLING_PUSHGATEWAY"}, Category: "Monitoring"},
	}
}

// metricsOf reads them. It is nil if nobody asked for metrics, and for a dry run.
func (a *app) metricsOf(c *cli.Context, command string, job ledger.Job) (*measurements, error) {
	m := &measurements{
		a: a, command: command, job: job, started: time.Now(), rateLimited: func() int64 { return 0 },
		file: c.String("metrics-file"), push: c.String("pushgateway"),
	}
	if m.push != "" {
		u, err := url.Parse(m.push)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
			return nil, usagef("--pushgateway: want an address such as http://pushgateway:9091, without a user or a password")
		}
	}
	if m.file == "" && m.push == "" || c.Bool("dry-run") {
		return nil, nil
	}
	return m, nil
}

// limitedBy is asked at the end how often Stripe answered 429.
func (m *measurements) limitedBy(count func() int64) {
	if m != nil {
		m.rateLimited = count
	}
}

// look reads the ledger after the work, as long as it is open: the named periods,
// all that are unfinished, and the latest.
func (m *measurements) look(ctx context.Context, pool *pgxpool.Pool, named ...ledger.Period) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), measurePatience)
	defer cancel()
	err := ledger.InReadTx(ctx, pool, func(tx pgx.Tx) (err error) {
		if m.last, m.lastDone, err = ledger.LastDone(ctx, tx, m.job); err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return err
		}
		if m.messages, err = ledger.MeasureMessages(ctx, tx); err != nil {
			return err
		}
		list, err := m.measured(ctx, tx, named)
		if err != nil {
			return err
		}
		for _, period := range list {
			one, err := ledger.Measure(ctx, tx, m.job, period)
			if err != nil {
				return err
			}
			m.periods = append(m.periods, one)
		}
		return nil
	})
	if err != nil {
		m.a.log.Warn("the ledger could not be read for the metrics; what they said of it before stays", "error", err)
	}
	m.read = err == nil
}

// measured are the periods to tell of, at most so many, the latest ones.
func (m *measurements) measured(ctx context.Context, q ledger.Querier, named []ledger.Period) ([]ledger.Period, error) {
	list, err := ledger.UnfinishedPeriods(ctx, q, m.job)
	if err != nil {
		return nil, err
	}
	latest, err := ledger.LatestRun(ctx, q, m.job)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	if err == nil {
		list = append(list, latest)
	}
	for _, period := range named {
		if period != "" {
			list = append(list, period)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[max(0, len(list)-maxMeasured):], nil
}

// tell writes the metrics; what can't be written is a warning, because the money
// has moved or not, whatever becomes of them.
func (m *measurements) tell(ctx context.Context, res *result, err error) *result {
	if m == nil {
		return res
	}
	if res == nil {
		res = &result{}
	}
	m.exitCode = classify(endedBy(ctx, err)).code
	if m.file != "" {
		if err := m.writeFile(); err != nil {
			m.a.warn(res, "the metrics could not be written: %v", err)
		}
	}
	if m.push != "" {
		if err := m.pushAll(ctx); err != nil {
			m.a.warn(res, "the metrics could not be pushed: %v", err)
		}
	}
	return res
}

// Describe says nothing beforehand: which series there are depends on the ledger.
func (m *measurements) Describe(chan<- *prometheus.Desc) {}

// Collect gives every series.
func (m *measurements) Collect(ch chan<- prometheus.Metric) {
	job := string(m.job)
	put := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		metric, err := prometheus.NewConstMetric(d, kind, value, append([]string{job}, labels...)...)
		if err != nil { // is reported when they are gathered; the money has moved by now
			metric = prometheus.NewInvalidMetric(d, err)
		}
		ch <- metric
	}
	put(descRunDuration, prometheus.GaugeValue, time.Since(m.started).Seconds(), m.command)
	put(descLastExitCode, prometheus.GaugeValue, float64(m.exitCode), m.command)
	put(descRateLimited, prometheus.CounterValue, float64(m.rateLimited()), m.command)
	if !m.read {
		return
	}
	if m.last != "" {
		put(descLastSuccess, prometheus.GaugeValue, float64(m.lastDone.UnixMilli())/1000, string(m.last))
	}
	put(descMessages, prometheus.GaugeValue, float64(m.messages.Queued), "queued")
	put(descMessages, prometheus.GaugeValue, float64(m.messages.Dead), "dead")
	put(descMessages, prometheus.GaugeValue, float64(m.messages.Undeliverable), "undeliverable")
	put(descOldestMessage, prometheus.GaugeValue, m.messages.OldestQueued.Seconds())
	for _, p := range m.periods {
		period := string(p.Period)
		for _, c := range byCurrency(p.Charges) {
			put(descCharges, prometheus.GaugeValue, float64(c.Count), period, string(c.State), c.Currency)
			put(descAmount, prometheus.GaugeValue, float64(c.AmountMinor), period, string(c.State), c.Currency)
		}
		for _, f := range p.Findings {
			put(descOpenFindings, prometheus.GaugeValue, float64(f.Count), period, string(f.Severity), f.Kind)
		}
		put(descUnknown, prometheus.GaugeValue, float64(p.Unknown), period)
		put(descOldestPending, prometheus.GaugeValue, p.OldestPending.Seconds(), period)
		put(descClaimsRefused, prometheus.CounterValue, float64(p.Refused), period)
	}
}

// byCurrency adds up what has a currency that is none, as a company's own view may
// give it: text from outside must not make series without end.
func byCurrency(charges []ledger.ChargeMeasure) (out []ledger.ChargeMeasure) {
	bad := map[ledger.ChargeState]int{}
	for _, c := range charges {
		if _, err := money.ParseCurrency(c.Currency); err == nil {
			out = append(out, c)
			continue
		}
		if i, there := bad[c.State]; there {
			out[i].Count += c.Count
			continue
		}
		bad[c.State] = len(out)
		out = append(out, ledger.ChargeMeasure{State: c.State, Currency: "none", Count: c.Count})
	}
	return out
}

// gatherer checks what is collected as Prometheus would.
func (m *measurements) gatherer() (prometheus.Gatherer, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(m); err != nil {
		return nil, fmt.Errorf("collect them: %w", err)
	}
	return registry, nil
}
