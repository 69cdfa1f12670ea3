package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// runbook returns the commands of a section of docs/runbook.md: those of its first
// block, without comments.
func runbook(t testing.TB, heading string) (commands [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, there := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, open := strings.Cut(section, "\n```\n")
	block, _, closed := strings.Cut(block, "\n```\n")
	if !there || !open || !closed || strings.Contains(block, "\n#") {
		t.Fatalf("docs/runbook.md has no commands under %q", heading)
	}
	for _, line := range strings.Split(block, "\n") {
		line, _, _ = strings.Cut(line, "  #")
		if words := shellWords(line); len(words) > 1 && words[0] == "billing" {
			commands = append(commands, words[1:])
		}
	}
	return commands
}

// shellWords splits a line as a shell does, as far as the runbook needs it.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// typeRunbook types a section of the runbook, for one account and with these files, and
// wants these exit codes.
func (o *office) typeRunbook(heading string, files map[string]string, codes ...int) {
	o.t.Helper()
	commands := runbook(o.t, heading)
	if len(commands) != len(codes) {
		o.t.Fatalf("%s has %d commands, want %d: %v", heading, len(commands), len(codes), commands)
	}
	for i, command := range commands {
		for j, word := range command {
			if text, there := files[word]; there {
				command[j] = o.file(word, text)
			}
		}
		o.must(codes[i], command...)
	}
}

const subject = "acct-1003" // of the runbook

// firstMonth is a company of which one account is the case.
func (o *office) firstMonth(change func(c *customer)) []customer {
	o.t.Helper()
	list := append(customers(12), customer{subject, "cus_1003", "pm_card_visa_1003", "49.00", "usd"})
	if change != nil {
		change(&list[12])
	}
	o.imports(october, list)
	return list
}

// paid wants a period to be whole, and the account to have paid so much in it.
func (o *office) paid(period string, minor int64) {
	o.t.Helper()
	got := one[int64](o, `SELECT coalesce(sum(amount_minor) FILTER (WHERE state = 'succeeded'), 0)::bigint FROM billing.charges
		WHERE account_id = $1 AND period = $2`, subject, period)
	if got != minor {
		o.t.Errorf("%s paid %d for %s, want %d", subject, got, period, minor)
	}
	others := one[int](o, `SELECT count(*) FROM billing.charges WHERE account_id <> $1 AND period = $2 AND state = 'succeeded'`, subject, period)
	if others != 12 {
		o.t.Errorf("%d of 12 others paid for %s", others, period)
	}
	o.mustBeWhole()
}

// only is a file with the account's invoice alone.
func only(amount string) string {
	return invoicesCSV([]customer{{id: subject, amount: amount, currency: "usd"}})
}

func TestAWrongAmountFoundBeforeTheRun(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.firstMonth(nil)
	o.must(65, "import", "invoices", "--period", october, "--file", o.file("october.csv", only("39.00")))
	o.typeRunbook("### A wrong amount, found before the run", map[string]string{"october.csv": only("39.00")}, 0, 0, 0)
	o.paid(october, 3900)
}

// The run was stopped when all was recorded and little was sent.
func TestAWrongAmountFoundBeforeTheSend(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.firstMonth(nil)
	o.must(0, "pause", "--account", subject, "--why", "so that this test has it unsent")
	o.month(3)
	o.must(0, "resume", "--account", subject)
	o.typeRunbook("### A wrong amount, found before the send", map[string]string{"october.csv": only("39.00")}, 0, 0, 0, 0, 0, 0)
	o.paid(october, 3900)
	if r := o.must(0, "show", "--period", october, "--account", subject); !strings.Contains(r.stdout, "wrong amount") || !strings.Contains(r.stdout, "the right amount") {
		t.Errorf("the reasons are not in its history\n%s", r)
	}
}

// The same while the run is at work: what is to be charged can't be changed until it
// has ended, and nothing is charged meanwhile.
func TestAWrongAmountFoundWhileTheRunIsAtWork(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.firstMonth(nil)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST", Account: "a0001"})
	p := o.start("run", "--period", october, "--concurrency", "1")
	eventually(t, "the first send is held", func() bool { return o.emu.Held() > 0 })
	o.must(0, "pause", "--account", subject, "--why", "wrong amount")
	o.must(0, "void", "--period", october, "--account", subject, "--why", "wrong amount")
	mended := []string{"import", "invoices", "--period", october, "--replace", "--file", o.file("october.csv", only("39.00"))}
	requeue := []string{"requeue", "--period", october, "--account", subject, "--why", "the right amount"}
	o.must(75, mended...)
	o.must(75, requeue...)
	o.emu.ClearFaults()
	o.emu.Release()
	p.wait()
	o.must(0, mended...)
	o.must(0, "resume", "--account", subject)
	o.must(0, requeue...)
	o.month(0)
	o.paid(october, 3900)
}

func TestAWrongAmountFoundAfterTheSend(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.firstMonth(nil)
	o.month(0)
	o.must(64, "void", "--period", october, "--account", subject, "--why", "wrong amount")
	if r := o.must(65, "import", "invoices", "--period", october, "--replace", "--file", o.file("october.csv", only("39.00")), "--json"); r.json(t).Error.Code != "invoice_frozen" {
		t.Errorf("%s", r)
	}
	id := one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = $1`, subject)
	if r := o.must(0, "show", "--period", october, "--account", subject); !strings.Contains(r.stdout, id) {
		t.Errorf("show does not have the PaymentIntent to refund\n%s", r)
	}
	if err := o.emu.Refund(id, 1000); err != nil {
		t.Fatal(err)
	}
	list[12].amount = "54.00" // 5.00 were too little
	o.monthOf(november)
	o.typeRunbook("### A wrong amount, found after the send", map[string]string{"november.csv": invoicesCSV(list)}, 0, 0)
	o.must(0, "run", "--period", november, "--allow-same")
	o.paid(october, 4900)
	o.paid(november, 5400)
}

// Nothing was paid, so a declined charge can still be corrected, once the customer
// can't pay the wrong amount any more.
func TestAWrongAmountThatWasDeclinedIsCorrected(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.firstMonth(func(c *customer) { c.card = "pm_card_chargeCustomerFail_1003" })
	o.month(0)
	list[12].card = "pm_card_visa_1003"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "void", "--period", october, "--account", subject, "--why", "wrong amount")
	o.must(0, "import", "invoices", "--period", october, "--replace", "--file", o.file("october.csv", only("39.00")))
	requeue := []string{"requeue", "--period", october, "--account", subject, "--why", "the right amount"}
	if r := o.must(4, requeue...); !strings.Contains(r.stdout, "could still pay") {
		t.Errorf("%s", r)
	}
	if err := o.emu.CancelIntent(one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = $1`, subject), "abandoned"); err != nil {
		t.Fatal(err)
	}
	o.must(75, requeue...) // a request may still be on its way
	o.advance(20 * time.Minute)
	o.must(0, requeue...)
	o.month(0)
	o.paid(october, 3900)
}

func TestACardAddedOnTheSecond(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.firstMonth(func(c *customer) { c.card = "" })
	o.month(0)
	o.advance(26 * time.Hour)
	list[12].card = "pm_card_visa_new"
	o.typeRunbook("### A card added on the 2nd", map[string]string{"accounts.csv": accountsCSV(list)}, 0, 0, 0)
	o.paid(october, 4900)
}

func TestACustomerWhoMustNotBeCharged(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.firstMonth(nil)
	o.typeRunbook("### A customer who must not be charged", nil, 0, 3, 0, 0, 0)
	o.paid(october, 0)
	if got := o.state(subject); got != "void" {
		t.Errorf("it is %s", got)
	}

	// For good, in the accounts' file.
	o = newOffice(t)
	o.firstMonth(nil)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv",
		"account_id,stripe_customer,payment_method,currency,status\n"+subject+",cus_1003,pm_card_visa_1003,usd,paused\n"))
	o.month(0)
	o.paid(october, 0)

	// It was charged already.
	o = newOffice(t)
	o.firstMonth(nil)
	o.month(0)
	if err := o.emu.Refund(one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = $1`, subject), 0); err != nil {
		t.Fatal(err)
	}
	o.month(0)
	o.paid(october, 4900) // what was taken; the refund is Stripe's
}

func TestAnInvoiceThatCameLate(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.firstMonth(nil)
	o.exec(`DELETE FROM billing.invoices WHERE account_id = $1`, subject)
	o.month(0)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.typeRunbook("## A late invoice", map[string]string{"late.csv": only("49.00")}, 0, 0, 0)
	o.paid(october, 4900)
}

// A gate stopped it: the mended file, or the approval, as the runbook says.
func TestAGateThatStopped(t *testing.T) {
	t.Parallel()
	for name, skip := range map[string]string{"it was wrong": "approve", "it is right": "import"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.monthOf(september)
			o.imports(september, company(1))
			o.must(0, "run", "--period", september)
			o.monthOf(october)
			right := company(2)
			o.imports(october, scaled(right, func(int) int { return 100 }))
			o.stoppedByGate(october, mistakes["amounts times 100"].gates)
			plan := o.must(0, "preview", "--period", october, "--json").json(t).Plan
			output := o.file("preview.csv", "")
			for _, command := range runbook(t, "## Stopped (3)") {
				for i, word := range command {
					switch word {
					case "PLAN":
						command[i] = plan
					case "october.csv":
						command[i] = o.file(word, invoicesCSV(right))
					case "preview.csv":
						command[i] = output
					}
				}
				if command[0] != skip {
					o.must(0, command...)
				}
			}
			o.mustBeWhole()
		})
	}
}

// Stop everything, as the runbook says, in the middle of a run.
func TestStopEverything(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, Latency: 20 * time.Millisecond})
	o.imports(october, customers(300))
	p := o.start("run", "--period", october, "--rate", "50")
	eventually(t, "sends are under way", func() bool { return o.emu.Posts() > 5 })
	for i, command := range runbook(t, "## Stop everything") {
		o.must(0, command...)
		if i == 1 {
			if r := p.wait(); r.code != 3 {
				t.Errorf("%s", r)
			}
		}
	}
	o.mustBeWhole()
}
