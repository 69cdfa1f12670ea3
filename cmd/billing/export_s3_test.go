package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/s3emu"
	"github.com/chargeonce/billing/reconcile/export"
)

// withBucket gives the office a bucket called finance, and a paid October of five.
func withBucket(t *testing.T) (*office, *s3emu.Server) {
	t.Helper()
	o := newOffice(t)
	s := s3emu.New("finance")
	t.Cleanup(s.Close)
	maps.Copy(o.env, map[string]string{
		"AWS_ENDPOINT_URL_S3": s.URL, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "s3-" + hidden,
		"TMPDIR": t.TempDir(),
	})
	o.imports(october, customers(5))
	o.month(0)
	return o, s
}

func toBucket(args ...string) []string {
	return append([]string{"export", "charges", "--period", october, "--output", "s3://finance/close/2026"}, args...)
}

const bucketData, bucketManifest = "close/2026/charges-2026-10.csv", "close/2026/charges-2026-10.csv.manifest.json"

// changes makes the ledger export other bytes.
func (o *office) changes() { o.exec(`UPDATE billing.charges SET refunds = refunds + 1`) }

// A set in a bucket is the one of a folder, the manifest last; the same once more is
// fine, and another content under the same name is refused and changes nothing.
func TestAnExportToABucket(t *testing.T) {
	t.Parallel()
	o, s := withBucket(t)
	if r := o.must(0, toBucket()...); r.stdout != "s3://finance/"+bucketData+": 5 charges of 2026-10\n" {
		t.Errorf("it says %q", r.stdout)
	}
	if got := s.Writes(); !slices.Equal(got, []string{bucketData, bucketManifest}) {
		t.Errorf("written: %q", got)
	}
	dir := t.TempDir()
	o.must(0, "export", "charges", "--period", october, "--output", dir)
	first := s.Objects()
	for name, text := range folder(t, dir) {
		if first["close/2026/"+name] != text {
			t.Errorf("%s is another in the folder", name)
		}
	}
	o.must(0, toBucket()...)
	if got := s.Writes(); len(got) != 2 {
		t.Errorf("the same again was written: %q", got)
	}
	o.changes()
	r := o.must(73, toBucket()...)
	if !strings.Contains(r.stderr, bucketData+" is there with another content") || !strings.Contains(r.stderr, "--by-hash") {
		t.Errorf("%s", r)
	}
	if diff := cmp.Diff(first, s.Objects()); diff != "" {
		t.Errorf("the refused export changed the bucket\n%s", diff)
	}
	o.must(0, toBucket("--by-hash")...)
	o.must(0, toBucket("--by-hash")...)
	if got := s.Objects(); len(got) != 4 {
		t.Errorf("by hash, there are %d objects", len(got))
	}
	if left, err := os.ReadDir(o.env["TMPDIR"]); err != nil || len(left) != 0 {
		t.Errorf("left on this machine: %v, %v", left, err)
	}
}

// Of two that write other contents under one name at the same moment one is refused, and
// what is there is one of the two, whole; two with the same content are both right.
func TestTwoExportsRaceForAName(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		o, s := withBucket(t)
		s.Gather(2)
		first := o.start(toBucket()...)
		// The first one has read the ledger when its PUT waits for the second's.
		eventually(t, "the first one writes", func() bool { return s.Waiting() == 1 })
		if !same {
			o.changes()
		}
		second := o.start(toBucket()...)
		a, b := first.wait(), second.wait()
		codes := []int{a.code, b.code}
		slices.Sort(codes)
		want := []int{0, 0}
		if !same {
			want = []int{0, 73}
		}
		if !slices.Equal(codes, want) {
			t.Errorf("the same content: %v: exits %v, want %v\n%s\n%s", same, codes, want, a, b)
		}
		files := map[string]string{}
		for key, text := range s.Objects() {
			files[strings.TrimPrefix(key, "close/2026/")] = text
		}
		if len(files) != 2 || len(s.Writes()) != 2 {
			t.Errorf("the same content: %v: written %q", same, s.Writes())
		}
		manifestOf(t, files, "charges-2026-10.csv.manifest.json")
	}
}

// Storage that fails now and then costs nothing but time, also when it did the work and
// the answer was lost.
func TestABucketThatFailsNowAndThen(t *testing.T) {
	t.Parallel()
	o, s := withBucket(t)
	s.Inject(s3emu.Fault{Method: "PUT", Code: "ConditionalRequestConflict", Status: 409, Times: 2})
	s.Inject(s3emu.Fault{Method: "PUT", After: true, Times: 1})
	s.Inject(s3emu.Fault{Method: "GET", Code: "SlowDown", Status: 503, Times: 2})
	s.Inject(s3emu.Fault{Method: "PUT", Code: "InternalError", Status: 500, Times: 1})
	o.must(0, toBucket()...)
	if got := s.Writes(); !slices.Equal(got, []string{bucketData, bucketManifest}) {
		t.Errorf("written: %q", got)
	}
}

// What the storage refuses has an exit code and says what to do; an export that broke off
// is finished by the next one, and its manifest is not there before.
func TestABucketThatRefuses(t *testing.T) {
	t.Parallel()
	o, s := withBucket(t)
	for _, tt := range []struct {
		fault s3emu.Fault
		code  int
		says  string
	}{
		{s3emu.Fault{Method: "PUT", Code: "AccessDenied", Status: 403, Times: 1}, 77, "s3:PutObject"},
		{s3emu.Fault{Method: "GET", Code: "InvalidAccessKeyId", Status: 403, Times: 1}, 77, "the key needs"},
		{s3emu.Fault{Method: "PUT", Code: "EntityTooLarge", Status: 400, Times: 1}, 74, "run the same command again"},
	} {
		s.Inject(tt.fault)
		r := o.must(tt.code, toBucket()...)
		if !strings.Contains(r.stderr, tt.says) || strings.Contains(r.String(), hidden) {
			t.Errorf("%s: %s", tt.fault.Code, r)
		}
	}
	if got := s.Objects(); len(got) != 0 {
		t.Errorf("there are %d objects", len(got))
	}
	if r := o.must(73, "export", "charges", "--period", october, "--output", "s3://nobodys/x"); !strings.Contains(r.stderr, "create the bucket") {
		t.Errorf("%s", r)
	}
	// Without the right to list, S3 says 403 of what is not there.
	s.Inject(s3emu.Fault{Method: "GET", Code: "AccessDenied", Status: 403, Times: 1})
	s.Put(bucketManifest, "{}")
	if r := o.must(73, toBucket()...); !strings.Contains(r.stderr, bucketManifest) || s.Objects()[bucketManifest] != "{}" {
		t.Errorf("%s", r)
	}
	o.env["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:1"
	o.must(74, toBucket("--by-hash")...)
	for _, address := range []string{"storage", "ftp://storage", "http://u:" + hidden + "@storage"} {
		o.env["AWS_ENDPOINT_URL_S3"] = address
		if r := o.must(78, toBucket()...); !strings.Contains(r.stderr, "AWS_ENDPOINT_URL") || strings.Contains(r.String(), hidden) {
			t.Errorf("%s: %s", address, r)
		}
	}
}

// What is damaged on the way is refused by the storage, and nothing is there.
func TestADamagedUploadIsRefused(t *testing.T) {
	t.Parallel()
	o, s := withBucket(t)
	s.Inject(s3emu.Fault{Method: "PUT", Damage: true, Times: 1})
	if r := o.must(74, toBucket()...); !strings.Contains(r.stderr, "BadDigest") || len(s.Objects()) != 0 {
		t.Errorf("%d objects\n%s", len(s.Objects()), r)
	}
	o.must(0, toBucket()...)
}

// While an export is under way to a bucket, nobody finds it on this machine, and nobody's
// files are in its way.
func TestAnExportToABucketIsNotSeenOnThisMachine(t *testing.T) {
	t.Parallel()
	o, s := withBucket(t)
	if err := os.Mkdir(o.env["TMPDIR"]+"/charges-2026-10.csv", 0o755); err != nil {
		t.Fatal(err)
	}
	s.Gather(2)
	p := o.start(toBucket()...)
	eventually(t, "it writes", func() bool { return s.Waiting() == 1 })
	if left, err := os.ReadDir(o.env["TMPDIR"]); err != nil || len(left) != 1 {
		t.Errorf("on this machine: %v, %v", left, err)
	}
	second := o.start(toBucket()...)
	if a, b := p.wait(), second.wait(); a.code != 0 || b.code != 0 {
		t.Errorf("%s\n%s", a, b)
	}
}

// The documents name the rights that messages name, and no credentials but the usual are
// taken.
func TestABucketsRightsAndCredentialsAreThoseOfTheDocuments(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/exports.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.ReplaceAll(string(text), "`", ""), export.NeededRights) {
		t.Errorf("docs/exports.md does not name %s", export.NeededRights)
	}
	o, _ := withBucket(t)
	delete(o.env, "AWS_ACCESS_KEY_ID")
	delete(o.env, "AWS_SECRET_ACCESS_KEY")
	maps.Copy(o.env, map[string]string{
		"MINIO_ACCESS_KEY": "AKIAOTHER", "MINIO_SECRET_KEY": hidden, "MINIO_ROOT_USER": "AKIAOTHER", "MINIO_ROOT_PASSWORD": hidden,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
	})
	if r := o.must(77, toBucket()...); !strings.Contains(r.stderr, "no credentials") {
		t.Errorf("%s", r)
	}
}

// Credentials are found where the AWS command line has them, too.
func TestABucketWithCredentialsFromAFile(t *testing.T) {
	t.Parallel()
	o, s := withBucket(t)
	delete(o.env, "AWS_ACCESS_KEY_ID")
	delete(o.env, "AWS_SECRET_ACCESS_KEY")
	o.env["AWS_SHARED_CREDENTIALS_FILE"] = o.file("credentials", "[billing]\naws_access_key_id = AKIAFILE\naws_secret_access_key = "+hidden+"\n")
	o.env["AWS_PROFILE"] = "billing"
	o.must(0, toBucket("--format", "jsonl", "--json")...)
	var m map[string]any
	if err := json.Unmarshal([]byte(s.Objects()["close/2026/charges-2026-10.jsonl.manifest.json"]), &m); err != nil {
		t.Errorf("%v: %v", err, s.Writes())
	}
}
