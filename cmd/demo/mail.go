//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chargeonce/billing/fixtures/mailemu"
)

// mailEnv switches every mail on, and has the emulator of Resend send them.
func mailEnv(r *mailemu.Resend) []string {
	return []string{
		"BILLING_MESSAGES=all", "BILLING_MAIL_FROM=Example Company <billing@example.com>", "BILLING_PAY_URL=https://example.com/pay?account={account_id}",
		"BILLING_RESEND_API_KEY=" + mailemu.ResendKey, "BILLING_RESEND_BASE=" + r.URL(), "BILLING_MAIL_RATE=0",
	}
}

// mails sends what the month has told, and counts it at the other end: the runs were
// killed and repeated, and whoever paid has one receipt.
func (d *demo) mails(ctx context.Context) error {
	code, err := d.program.run(ctx, "outbox", "send", "--quiet")
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("billing outbox send: exit code %d", code)
	}
	kinds, twice := map[string]int{}, 0
	for key, n := range d.resend.PerKey() {
		kind, _, _ := strings.Cut(key, "/")
		kinds[kind] += n
		twice += n - 1
	}
	var said []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		said = append(said, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	d.note("mailed: " + strings.Join(said, ", ") + "; one of them:")
	if err := d.showMail("receipt/"); err != nil {
		return err
	}
	const sqlSucceeded = `
		SELECT count(*) FROM billing.report_charges c JOIN billing.accounts a USING (account_id)
		WHERE c.state = 'succeeded' AND a.email <> ''`
	paid := 0
	if err := d.db.QueryRow(ctx, sqlSucceeded).Scan(&paid); err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	if kinds["receipt"] != paid || twice > 0 {
		return fmt.Errorf("%d receipts were mailed for %d who paid, and %d mails twice", kinds["receipt"], paid, twice)
	}
	return nil
}

// showMail prints the first mail whose key begins so.
func (d *demo) showMail(prefix string) error {
	for _, m := range d.resend.Mails() {
		if !strings.HasPrefix(m.Key, prefix) {
			continue
		}
		var mail struct {
			From, Subject, Text string
			To                  []string
		}
		if err := json.Unmarshal(m.Body, &mail); err != nil {
			return fmt.Errorf("read a mail: %w", err)
		}
		text := fmt.Sprintf("From: %s\nTo: %s\nSubject: %s\n\n%s", mail.From, strings.Join(mail.To, ", "), mail.Subject, strings.TrimSpace(mail.Text))
		for line := range strings.Lines(text) {
			d.say("  %s", aside("| "+strings.TrimRight(line, "\n")))
		}
		return nil
	}
	return fmt.Errorf("no mail of a %s was sent", strings.TrimSuffix(prefix, "/"))
}
