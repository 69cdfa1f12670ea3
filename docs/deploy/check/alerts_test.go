package check

import (
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// foreign are the metrics in the rules that the program does not write, and who does.
var foreign = map[string]string{"push_time_seconds": "Pushgateway", "node_textfile_mtime_seconds": "node_exporter"}

// rules are those of alerts.yml, as Prometheus reads them.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, "../alerts.yml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 {
		t.Fatal("alerts.yml has no group, or several")
	}
	return groups.Groups[0].Rules
}

// The rules ask for metrics and labels that the program writes, and for all of its metrics but the sums of money,
// which nobody is called for.
func TestTheAlertsAskForMetricsThatExist(t *testing.T) {
	source := string(read(t, "../../../cmd/billing/metrics.go"))
	written := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\s+metric\w+\s*=\s*"(billing_[a-z_]+)"`).FindAllStringSubmatch(source, -1) {
		written[m[1]] = true
	}
	asked := map[string]bool{}
	for _, rule := range rules(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			if foreign[selector.Name] != "" {
				return nil
			}
			asked[selector.Name] = true
			for _, m := range selector.LabelMatchers {
				if m.Name != labels.MetricName && !strings.Contains(source, `"`+m.Name+`"`) {
					t.Errorf("%s: %s has no label %s", rule.Alert, selector.Name, m.Name)
				}
			}
			return nil
		})
	}
	delete(written, "billing_amount_minor")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(written)), slices.Sorted(maps.Keys(asked))); diff != "" {
		t.Errorf("-written by the program +asked for by alerts.yml:\n%s", diff)
	}
}

// Each alert says how urgent it is, what is wrong and what to do, and has a test that makes it fire.
func TestEveryAlertSaysWhatToDoAndIsTested(t *testing.T) {
	tests := string(read(t, "../alerts_test.yml"))
	for _, rule := range rules(t) {
		if s := rule.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q, want page or ticket", rule.Alert, s)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s: a summary and a description are missing", rule.Alert)
		}
		if !strings.Contains(tests, "alertname: "+rule.Alert+"\n") {
			t.Errorf("%s: no test in alerts_test.yml", rule.Alert)
		}
	}
}
