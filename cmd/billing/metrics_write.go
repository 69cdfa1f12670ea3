package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/prometheus/client_golang/prometheus/push"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/chargeonce/billing/reconcile/export"
)

// maxOldMetrics is what is read of an earlier file.
const maxOldMetrics = 4 << 20

// writeFile writes the text file for node_exporter's textfile collector, whole or
// not at all. Where the ledger could not be read, what the old file said of it stays:
// an alert on the last success must not fall silent because Postgres did.
func (m *measurements) writeFile() error {
	families, err := m.families()
	if err != nil {
		return err
	}
	if !m.read {
		families = append(families, ledgerFamilies(m.file)...)
	}
	err = export.WriteFile(m.file, func(w io.Writer) error {
		for _, family := range families {
			if _, err := expfmt.MetricFamilyToText(w, family); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("--metrics-file: %w", err)
	}
	return nil
}

func (m *measurements) families() ([]*dto.MetricFamily, error) {
	g, err := m.gatherer()
	if err != nil {
		return nil, err
	}
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("collect them: %w", err)
	}
	return families, nil
}

// ledgerFamilies are those of an earlier file that come from the ledger, none if
// there is no such file or it can't be read.
func ledgerFamilies(path string) (kept []*dto.MetricFamily) {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Mode()&fs.ModeType != 0 {
		return nil // a pipe would be waited for
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	old, err := parser.TextToMetricFamilies(io.LimitReader(file, maxOldMetrics))
	if err != nil {
		return nil
	}
	for _, name := range ledgerMetrics {
		if family, there := old[name]; there {
			kept = append(kept, family)
		}
	}
	return kept
}

// pushAll replaces the job's group on the Pushgateway; where the ledger could not
// be read, only the metrics that are known. The group has no instance: any host may
// run the month, and the one that was last knows best.
func (m *measurements) pushAll(ctx context.Context) error {
	g, err := m.gatherer()
	if err != nil {
		return err
	}
	client := newMonitorClient()
	client.Timeout = pushTime
	pusher := push.New(m.push, string(m.job)).Gatherer(g).Client(client).Format(expfmt.NewFormat(expfmt.TypeTextPlain))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushTime)
	defer cancel()
	send := pusher.PushContext
	if !m.read {
		send = pusher.AddContext
	}
	if err := send(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", pushTime)
		}
		return fmt.Errorf("--pushgateway: %w", err)
	}
	return nil
}
