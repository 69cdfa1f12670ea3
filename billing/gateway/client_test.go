package gateway

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "sk_test_emulator"

// newTestClient makes a client of an address that is only up during the test.
func newTestClient(t *testing.T, base string) *Client {
	t.Helper()
	c, err := New(Config{SecretKey: testKey, APIBase: base, ReadRate: -1})
	if err != nil {
		t.Fatal(err)
	}
	c.firstPause = 1
	t.Cleanup(c.Close)
	return c
}

func TestNewRefusesWhatCouldMoveTheWrongMoney(t *testing.T) {
	for name, test := range map[string]struct {
		cfg     Config
		setting string
	}{
		"no key":                      {Config{}, "STRIPE_SECRET_KEY"},
		"publishable key":             {Config{SecretKey: "pk_test_abc"}, "STRIPE_SECRET_KEY"},
		"webhook secret":              {Config{SecretKey: "whsec_abc"}, "STRIPE_SECRET_KEY"},
		"key with a line break":       {Config{SecretKey: "sk_test_abc\n"}, "STRIPE_SECRET_KEY"},
		"key with a blank":            {Config{SecretKey: " sk_test_abc"}, "STRIPE_SECRET_KEY"},
		"live key, not said so":       {Config{SecretKey: "sk_live_abc"}, "BILLING_LIVE"},
		"restricted live key":         {Config{SecretKey: "rk_live_abc"}, "BILLING_LIVE"},
		"live key to another address": {Config{SecretKey: "sk_live_abc", Live: true, APIBase: "http://127.0.0.1:1"}, "STRIPE_API_BASE"},
		"live key over plain HTTP":    {Config{SecretKey: "sk_live_abc", Live: true, APIBase: "http://api.stripe.com"}, "STRIPE_API_BASE"},
		"address without a scheme":    {Config{SecretKey: "sk_test_abc", APIBase: "127.0.0.1:12111"}, "STRIPE_API_BASE"},
		"address with a path":         {Config{SecretKey: "sk_test_abc", APIBase: "http://h/stripe"}, "STRIPE_API_BASE"},
		"address with a password":     {Config{SecretKey: "sk_test_abc", APIBase: "http://u:p@h"}, "STRIPE_API_BASE"},
		"address of a file":           {Config{SecretKey: "sk_test_abc", APIBase: "file:///tmp"}, "STRIPE_API_BASE"},
	} {
		c, err := New(test.cfg)
		var configError *ConfigError
		if c != nil || !errors.As(err, &configError) || configError.Setting != test.setting {
			t.Errorf("%s: %v, want a complaint about %s", name, err, test.setting)
			continue
		}
		if strings.Contains(err.Error(), "abc") {
			t.Errorf("%s: the error repeats the key: %v", name, err)
		}
	}
}

func TestNewTellsTheMode(t *testing.T) {
	for key, mode := range map[string]string{"sk_test_a": "test", "rk_test_a": "test", "sk_live_a": "live", "rk_live_a": "live"} {
		for _, base := range []string{"", "https://api.stripe.com", "https://api.stripe.com/v1/"} {
			c, err := New(Config{SecretKey: key, Live: mode == "live", APIBase: base})
			if err != nil || c.Mode() != mode || c.Livemode() != (mode == "live") {
				t.Errorf("%s at %q: %v", key, base, err)
			}
		}
	}
}
