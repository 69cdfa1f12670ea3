package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/fixtures/mailemu"
)

// deadReceipts is an office with dead receipts of n customers, and no webhooks.
func deadReceipts(t *testing.T, n int) *outboxOffice {
	t.Helper()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.importMailed(customers(n))
	o.month(0)
	o.resend.Inject(mailemu.FaultInvalid422, n)
	o.must(4, "outbox", "send")
	mustEqual(t, "mails", o.outboxKeys("email"), inState(keysOf("receipt", n), "dead"))
	return o
}

// add queues a copy of some message under another key.
func (o *outboxOffice) add(key, job, lane, state, reason string) {
	o.t.Helper()
	if _, err := o.db.Pool.Exec(o.t.Context(), `INSERT INTO billing.outbox (dedupe_key, kind, channel, lane, destination, job, period, account_id, payload, state, reason, settled_at)
		SELECT $1, kind, channel, $3, destination, $2, period, account_id, payload, $4, $5, CASE WHEN $4 <> 'queued' THEN billing.now() END
		FROM billing.outbox ORDER BY id LIMIT 1`, key, job, lane, state, reason); err != nil {
		o.t.Fatal(err)
	}
}

// What drop and release act on is typed: a period or a job in the environment chooses
// nothing.
func TestWhatIsDroppedIsTyped(t *testing.T) {
	t.Parallel()
	o := deadReceipts(t, 2)
	o.env["BILLING_PERIOD"] = october
	o.must(64, "outbox", "drop", "--why", "x")
	o.must(64, "outbox", "release", "--why", "x")
	mustEqual(t, "mails", o.outboxKeys("email"), inState(keysOf("receipt", 2), "dead"))
	o.env["BILLING_PERIOD"] = "2026-09"
	if r := o.must(0, "outbox", "list"); strings.Count(r.stdout, "http_422") != 2 {
		t.Errorf("the list depends on the environment\n%s", r)
	}
	if _, err := o.db.Pool.Exec(t.Context(), `INSERT INTO billing.outbox_lanes (lane, stopped_at, stopped_for) VALUES ('email', billing.now(), 'gone')`); err != nil {
		t.Fatal(err)
	}
	o.must(0, "outbox", "release", "--lane", "email", "--why", "it is back")
	if one[bool](o.office, `SELECT stopped_at IS NOT NULL FROM billing.outbox_lanes`) {
		t.Error("the lane is still stopped")
	}
	o.must(0, "outbox", "drop", "--period", october, "--why", "typed")
	mustEqual(t, "mails", o.outboxKeys("email"), inState(keysOf("receipt", 2), "dropped"))
}

// What was dropped by mistake is released by its id, or by its state; a release of dead
// letters wakes nothing that was dropped.
func TestWhatWasDroppedCanBeReleased(t *testing.T) {
	t.Parallel()
	o := deadReceipts(t, 4)
	o.must(0, "outbox", "drop", "--account", "a0001", "--why", "a mistake")
	o.must(0, "outbox", "drop", "--account", "a0002", "--why", "another")
	o.must(0, "outbox", "drop", "--account", "a0003", "--why", "has left")
	id := func(account string) string {
		return one[string](o.office, `SELECT id::text FROM billing.outbox WHERE account_id = $1`, account)
	}
	o.must(0, "outbox", "release", "--id", id("a0001"), "--why", "was a mistake", "--by", "ada")
	o.must(0, "outbox", "release", "--account", "a0002", "--state", "dropped", "--why", "this too", "--by", "ada")
	o.must(0, "outbox", "release", "--kind", "receipt", "--why", "all that are dead")
	o.must(0, "outbox", "send")
	mustEqual(t, "mails", o.outboxKeys("email"), []string{"receipt/a0001/1 sent", "receipt/a0002/1 sent", "receipt/a0003/1 dropped", "receipt/a0004/1 sent"})
	if got := one[string](o.office, `SELECT string_agg(concat_ws(' ', action, person, why), ', ' ORDER BY id) FROM billing.outbox_events WHERE person = 'ada'`); got != "release ada was a mistake, release ada this too" {
		t.Errorf("the history says %q", got)
	}
	o.must(64, "outbox", "release", "--id", id("a0001"), "--why", "again") // sent
	o.must(64, "outbox", "release", "--account", "a0003", "--state", "sent", "--why", "again")
}

// Messages of all jobs are one outbox: what send counts, the list shows, and a person
// can release and drop, unless a job is typed.
func TestTheOutboxIsOfAllJobs(t *testing.T) {
	t.Parallel()
	o := deadReceipts(t, 1)
	if r := o.must(0, "outbox", "list"); strings.Contains(r.stdout, "job") || strings.Contains(r.stdout, "JOB") {
		t.Errorf("one job needs no column\n%s", r)
	}
	o.add("theirs", "other", "email", "dead", "unknown")
	for _, env := range []string{"", "other", "monthly-billing"} {
		o.env["BILLING_JOB"] = env
		if r := o.must(0, "outbox", "list"); !strings.Contains(r.stdout, "other") || !strings.Contains(r.stdout, "monthly-billing") {
			t.Errorf("BILLING_JOB=%q: the list does not have both jobs\n%s", env, r)
		}
	}
	o.env["BILLING_JOB"] = ""
	if r := o.must(0, "outbox", "list", "--job", "other"); !strings.Contains(r.stdout, "unknown") || strings.Contains(r.stdout, "http_422") {
		t.Errorf("want those of the other job alone\n%s", r)
	}
	o.must(64, "outbox", "release", "--job", "monthly-billing", "--reason", "unknown", "--why", "none")
	o.must(0, "outbox", "release", "--reason", "unknown", "--why", "theirs")
	o.must(0, "outbox", "drop", "--job=monthly-billing", "--kind", "receipt", "--why", "ours")
	if got := one[string](o.office, `SELECT string_agg(job || ' ' || state, ', ' ORDER BY job) FROM billing.outbox`); got != "monthly-billing dropped, other queued" {
		t.Errorf("they are %s", got)
	}
}

// Only what the next start will really try again is waiting (75). What a person must
// release, or send from elsewhere, ends with 4; with both, 75 comes first, as for runs.
func TestSendSaysWhoMustAct(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.importMailed(customers(1))
	o.month(0)
	o.must(0, "outbox", "send")
	stop := func(lane string) {
		if _, err := o.db.Pool.Exec(t.Context(), `INSERT INTO billing.outbox_lanes (lane, stopped_at, stopped_for) VALUES ($1, billing.now(), 'gone')`, lane); err != nil {
			t.Fatal(err)
		}
	}
	o.add("nobody sends it", "monthly-billing", "hooks.example.com-00000000", "queued", "")
	if r := o.must(4, "outbox", "send"); !strings.Contains(r.stderr, "hooks.example.com-00000000") || !strings.Contains(r.stdout, "0 waiting") {
		t.Errorf("it does not say what nobody sends\n%s", r)
	}
	o.resend.Stop()
	o.add("later", "monthly-billing", "email", "queued", "")
	if r := o.must(75, "outbox", "send"); !strings.Contains(r.stdout, "1 waiting") || !strings.Contains(r.stderr, "hooks.example.com-00000000") {
		t.Errorf("want one that waits, and a word of the other\n%s", r)
	}
	stop("email")
	o.must(4, "outbox", "send")
	o.must(0, "outbox", "release", "--lane", "email", "--why", "it is back")
	stop(outbox.Lane(o.hook.URL()))
	o.add("stopped", "monthly-billing", outbox.Lane(o.hook.URL()), "queued", "")
	o.must(75, "outbox", "send") // the mail is tried again
}

// The names under which a receiver knows a message are in the list, for who must ask it
// whether it has an unknown one.
func TestTheListHasTheNamesAtReceivers(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(customers(1))
	o.month(0)
	o.must(0, "outbox", "send")
	var list struct {
		Details struct {
			Messages []map[string]any `json:"messages"`
		} `json:"details"`
	}
	r := o.must(0, "outbox", "list", "--state", "sent", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
		t.Fatalf("%v\n%s", err, r)
	}
	hooks, keys := o.hook.PerID(), o.resend.PerKey()
	var domains []string
	for _, m := range list.Details.Messages {
		if m["kind"] == "receipt" {
			if keys[fmt.Sprint(m["idempotency_key"])] != 1 || m["webhook_id"] != "" {
				t.Errorf("Resend has %v, and the list %v", keys, m)
			}
			domains = append(domains, strings.TrimLeft(fmt.Sprint(m["message_id"]), "<0123456789abcdef"))
		} else if hooks[fmt.Sprint(m["webhook_id"])] != 1 || m["idempotency_key"] != "" || m["message_id"] != "" {
			t.Errorf("the receiver has %v, and the list %v", slices.Collect(maps.Keys(hooks)), m)
		}
	}
	if len(list.Details.Messages) != 3 || !slices.Equal(domains, []string{"@acme.example>"}) {
		t.Errorf("%d messages, and Message-IDs of %v", len(list.Details.Messages), domains)
	}
	if r := o.must(0, "outbox", "list", "--state", "sent", "--kind", "receipt"); !strings.Contains(r.stdout, "@acme.example>") || !strings.Contains(r.stdout, "receipt/monthly-billing/2026-10/a0001/1") {
		t.Errorf("a single message does not say its names\n%s", r)
	}
	if r := o.must(0, "outbox", "list", "--state", "sent", "--format", "csv"); !strings.Contains(r.stdout, "@acme.example>") || !strings.Contains(r.stdout, "msg_") {
		t.Errorf("the CSV does not have the names\n%s", r)
	}
}

// Over SMTP the Message-ID of the list is the one in the mail.
func TestTheListHasTheMessageID(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	server := o.overSMTP()
	o.importMailed(customers(1))
	o.month(0)
	o.must(0, "outbox", "send")
	r := o.must(0, "outbox", "list", "--state", "sent", "--format", "csv")
	_, after, _ := strings.Cut(string(server.Mails()[0].Raw), "Message-ID: ")
	if id, _, _ := strings.Cut(after, "\r\n"); id == "" || !strings.Contains(r.stdout, id) {
		t.Errorf("the mail has the Message-ID %q\n%s", id, r)
	}
}

// A month that is charged where messages are off, though its job has told some before,
// says so once; the help of send names the flags that there are.
func TestMessagesThatAreOffHereAreSaid(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(customers(1))
	on := maps.Clone(o.env)
	delete(o.env, "BILLING_MESSAGES")
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	const off = "messages are off here"
	if r := o.month(0); strings.Contains(r.String(), off) {
		t.Errorf("no message was ever on\n%s", r)
	}
	o.env = maps.Clone(on)
	o.must(0, "reopen", "--period", october, "--why", "once more")
	if r := o.month(0); strings.Contains(r.String(), off) {
		t.Errorf("they are on\n%s", r)
	}
	delete(o.env, "BILLING_MESSAGES")
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.must(0, "reopen", "--period", october, "--why", "once more")
	for _, r := range []outcome{o.month(0), o.must(0, "reconcile", "--period", october)} {
		if strings.Count(r.stderr, off) != 1 {
			t.Errorf("it should say once that they are off\n%s", r)
		}
	}
	if r := o.must(0, "reconcile", "--period", october, "--dry-run"); strings.Contains(r.String(), off) {
		t.Errorf("a dry run changes nothing that could be told\n%s", r)
	}
	if help := o.must(0, "outbox", "send", "--help").stdout; strings.Contains(help, "--wait ") {
		t.Errorf("there is no flag --wait\n%s", help)
	}
}

// A dry run writes no message, so that it needs no right to.
func TestADryRunNeedsNoRightToTell(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(fourFates())
	o.month(0)
	o.as("billing_read")
	o.must(0, "reconcile", "--period", october, "--dry-run")
	if r := o.run("retry-declined", "--period", october, "--account", "a0002", "--why", "a look", "--dry-run"); r.code == 78 {
		t.Errorf("a dry run is refused\n%s", r)
	}
	o.must(78, "reconcile", "--period", october)
}
