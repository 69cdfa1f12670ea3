package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// lines hands every write to the test, which waits for the address so.
type lines chan string

func (l lines) Write(b []byte) (int, error) { l <- string(b); return len(b), nil }

// The process prints its address, knows its seed, and ends when told to.
func TestServesUntilStopped(t *testing.T) {
	seed := filepath.Join(t.TempDir(), "seed.json")
	if err := os.WriteFile(seed, []byte(`{"customers":[{"id":"cus_1","name":"Ada"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out, code := make(lines, 10), make(chan int)
	go func() {
		code <- run(ctx, []string{"--addr", "127.0.0.1:0", "--key", "sk_test_a", "--key", "sk_test_b", "--account", "acct_7", "--seed", seed}, out)
	}()
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(<-out)
	for path, wanted := range map[string]string{"/v1/customers/cus_1": "Ada", "/v1/account": "acct_7", "/_emulator/": "Stripe emulator"} {
		req, err := http.NewRequest(http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer sk_test_b")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if !strings.Contains(string(body), wanted) {
			t.Fatalf("%s answered %s", path, body)
		}
	}
	stop()
	if c := <-code; c != 0 {
		t.Fatalf("exit %d", c)
	}
}

// Mistakes on the command line are 64; an address that cannot be had or a seed
// that cannot be read is 1.
func TestExitCodes(t *testing.T) {
	for args, wanted := range map[string]int{"--help": 0, "--no-such-flag": 64, "serve": 64, "--addr 256.0.0.1:1": 1, "--seed /no/such/file": 1} {
		var out bytes.Buffer
		if got := run(context.Background(), strings.Fields(args), &out); got != wanted || out.Len() == 0 {
			t.Errorf("%s: exit %d, want %d: %s", args, got, wanted, out.String())
		}
	}
}
