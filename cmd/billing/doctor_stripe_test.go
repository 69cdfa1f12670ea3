package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// restricted is an office with a key that may read everything but some operations.
func restricted(lacking ...string) func(*office) {
	return func(o *office) {
		may := []string{}
		for _, operation := range []string{stripeemu.OpList, stripeemu.OpRead, stripeemu.OpSearch, stripeemu.OpReadCustomer, stripeemu.OpReadAccount} {
			if !strings.Contains(strings.Join(lacking, " ")+" ", operation+" ") {
				may = append(may, operation)
			}
		}
		o.env["STRIPE_SECRET_KEY"] = "rk_test_secret-restricted"
		o.emu.AddRestrictedKey("rk_test_secret-restricted", may...)
	}
}

// edited puts something between that changes what Stripe says of the account.
func edited(from, to string) func(*office) {
	return func(o *office) {
		address, err := url.Parse(o.env["STRIPE_API_BASE"])
		if err != nil {
			o.t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(address)
		proxy.ModifyResponse = func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			if r.Request.URL.Path == "/v1/account" {
				body = bytes.ReplaceAll(body, []byte(from), []byte(to))
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Del("Content-Length")
			return err
		}
		server := httptest.NewServer(proxy)
		o.t.Cleanup(server.Close)
		o.env["STRIPE_API_BASE"] = server.URL
	}
}

// pinnedTo is a ledger that belongs to somebody.
func pinnedTo(account string, live bool) func(*office) {
	return func(o *office) {
		o.exec(`INSERT INTO billing.stripe_identity (account_id, livemode, pinned_by) VALUES ($1, $2, 'test')`, account, live)
	}
}

// unasked are the checks that a Stripe which does not answer leaves out.
var unasked = []string{"stripe_customers warn", "stripe_list warn", "stripe_read warn", "stripe_search warn", "stripe_write warn"}

// both breaks two things.
func both(arms ...func(*office)) func(*office) {
	return func(o *office) {
		for _, arm := range arms {
			arm(o)
		}
	}
}

// The key is looked at by reading alone, each of its rights by itself.
func TestDoctorFindsWhatIsWrongWithStripe(t *testing.T) {
	t.Parallel()
	keyless := append([]string{"identity warn", "stripe_account warn"}, unasked...)
	unknown := append([]string{"identity warn"}, unasked...)
	rk := []string{"stripe_write warn"}
	examineEach(t, true, map[string]map[string]ailment{
		"stripe_key": {
			"none":             {arm: set("STRIPE_SECRET_KEY", ""), status: statusFail, says: []string{"no Stripe key", "STRIPE_SECRET_KEY_FILE"}, others: keyless},
			"publishable":      {arm: set("STRIPE_SECRET_KEY", "pk_test_secret-123456"), status: statusFail, says: []string{"publishable"}, others: keyless},
			"something else":   {arm: set("STRIPE_SECRET_KEY", "secret-123456"), status: statusFail, says: []string{"not a Stripe key"}, others: keyless},
			"live, not said":   {arm: set("STRIPE_SECRET_KEY", "sk_live_secret-123456"), status: statusFail, says: []string{"BILLING_LIVE=true"}, others: keyless},
			"live, elsewhere":  {arm: both(set("STRIPE_SECRET_KEY", "sk_live_secret-123456"), set("BILLING_LIVE", "true")), status: statusFail, says: []string{"only ever sent to https://api.stripe.com"}, others: keyless},
			"test, said live":  {arm: set("BILLING_LIVE", "true"), status: statusWarn, says: []string{"sk_test_…ator", "though BILLING_LIVE=true"}},
			"half said":        {arm: set("BILLING_LIVE", "yes"), status: statusWarn, says: []string{"BILLING_LIVE=yes means nothing"}},
			"no file":          {arm: both(set("STRIPE_SECRET_KEY", ""), set("STRIPE_SECRET_KEY_FILE", "/nowhere/key")), status: statusFail, says: []string{"STRIPE_SECRET_KEY_FILE", "check the path"}, others: append([]string{"settings fail"}, keyless...)},
			"restricted, fine": {arm: restricted(), status: statusOK, says: []string{"a restricted key of test mode, rk_test_…cted"}, others: rk},
		},
		"stripe_address": {
			"elsewhere": {arm: func(*office) {}, status: statusWarn, says: []string{"instead of Stripe"}},
		},
		"stripe_account": {
			"refused":       {arm: set("STRIPE_SECRET_KEY", "sk_test_secret-unknown"), status: statusFail, says: []string{"HTTP 401"}, others: unknown},
			"not readable":  {arm: restricted(stripeemu.OpReadAccount), status: statusFail, says: []string{"HTTP 403", "Accounts: read"}, others: []string{"identity warn", "stripe_write warn"}},
			"not reached":   {arm: set("STRIPE_API_BASE", "http://127.0.0.1:1"), status: statusFail, says: []string{"connection refused"}, others: unknown},
			"not Stripe":    {arm: edited(`"acct_`, `"nobody_`), status: statusFail, says: []string{"not a Stripe account"}, others: unknown},
			"down":          {arm: fault(stripeemu.FaultUnavailable503), status: statusFail, says: []string{"HTTP 503"}, others: unknown},
			"not activated": {arm: edited(`"charges_enabled":true`, `"charges_enabled":false`), status: statusWarn, says: []string{"charge nobody"}},
		},
		"stripe_list":      {"refused": {arm: restricted(stripeemu.OpList), status: statusFail, says: []string{"rak_payment_intent_read", "PaymentIntents: read"}, others: rk}},
		"stripe_read":      {"refused": {arm: restricted(stripeemu.OpRead), status: statusFail, says: []string{"HTTP 403", "Charges: read"}, others: rk}},
		"stripe_customers": {"refused": {arm: restricted(stripeemu.OpReadCustomer), status: statusFail, says: []string{"rak_customer_read", "Customers: read"}, others: rk}},
		"stripe_search": {
			"refused":  {arm: restricted(stripeemu.OpSearch), status: statusWarn, says: []string{"lists are read instead"}, others: rk},
			"in India": {arm: edited(`"country":"US"`, `"country":"IN"`), status: statusWarn, says: []string{"no search in India"}},
			"missing":  {arm: fault(stripeemu.FaultSearchUnavailable), status: statusWarn, says: []string{"lists are read instead"}},
		},
		"stripe_write": {"not told": {arm: restricted(), status: statusWarn, says: []string{"can't be told without creating one", "PaymentIntents: write"}}},
	})
}

// The ledger's account and clock are compared with Stripe's.
func TestDoctorComparesTheLedgerWithStripe(t *testing.T) {
	t.Parallel()
	examineEach(t, false, map[string]map[string]ailment{
		"identity": {
			"another account": {arm: pinnedTo("acct_other", false), status: statusFail, says: []string{"belongs to Stripe account acct_other (test mode), the key is of acct_emulator"}},
			"another mode":    {arm: pinnedTo("acct_emulator", true), status: statusFail, says: []string{"live mode"}},
			"the same":        {arm: pinnedTo("acct_emulator", false), status: statusOK},
			"mode, unreached": {arm: both(pinnedTo("acct_emulator", true), set("STRIPE_API_BASE", "http://127.0.0.1:1")), status: statusFail, says: []string{"the key is of test mode"},
				others: append([]string{"stripe_account fail"}, unasked...)},
		},
		"clocks": {
			"Stripe ahead":  {arm: func(o *office) { o.emu.SetDateOffset(5 * time.Minute) }, status: statusFail, says: []string{"differ by", "NTP"}},
			"Stripe behind": {arm: func(o *office) { o.emu.SetDateOffset(-5 * time.Minute) }, status: statusFail, says: []string{"the clocks differ by"}},
			"host":          {arm: func(o *office) { o.setNow(time.Now().Add(5 * time.Minute)) }, status: statusWarn, says: []string{"off Postgres and Stripe"}},
			"all agree":     {arm: func(o *office) { o.setNow(time.Now()) }, status: statusOK},
		},
	})
}

func fault(name stripeemu.FaultKind) func(*office) {
	return func(o *office) { o.emu.Inject(stripeemu.Fault{Name: name}) }
}
