package export

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// maxS3Retries bounds how often one request is repeated.
	maxS3Retries = 5
	// maxMetadataWait bounds the search for credentials of the machine, where most have
	// no such service.
	maxMetadataWait = 5 * time.Second
	// maxObject is what object storage takes in one piece, which is the only way to
	// write on condition that nothing is there.
	maxObject = 5 << 30
)

// NeededRights are those that a key needs. Without the last one, what is not there looks
// forbidden; an export still works then, but can't tell the two apart.
const NeededRights = "s3:PutObject, s3:GetObject and s3:ListBucket"

// S3Config says where object storage is. Credentials come from where they usually
// do: the environment, the files of the AWS command line, the machine's own role.
type S3Config struct {
	Endpoint string // a URL; empty for Amazon's
	Region   string // empty to ask
	Scratch  string // a folder for what is being written
}

// ErrBadAddress is an Endpoint that can't be used. It may have a password in it, so it is
// not quoted.
var ErrBadAddress = errors.New("the address of the storage, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, is no URL of a host alone")

// Bucket is a place in object storage under which sets are written.
type Bucket struct {
	client  *minio.Client
	name    string
	prefix  string
	scratch string
}

// IsBucket reports whether an output is in object storage.
func IsBucket(output string) bool { return strings.HasPrefix(output, "s3://") }

// ParseBucket reads s3://bucket/prefix.
func ParseBucket(output string) (name, prefix string, err error) {
	name, prefix, _ = strings.Cut(strings.TrimPrefix(output, "s3://"), "/")
	prefix = strings.Trim(prefix, "/")
	switch {
	case name == "" || strings.ContainsAny(name, "?#@:\\ "):
		return "", "", fmt.Errorf("%q: want s3://bucket/prefix", output)
	case strings.Contains("/"+prefix+"/", "/../") || strings.Contains("/"+prefix+"/", "/./") || strings.Contains(prefix, "//"):
		return "", "", fmt.Errorf("%q: the prefix has an empty part, . or ..", output)
	case path.Ext(prefix) != "" && strings.Contains(".csv.jsonl.xlsx.json.", path.Ext(prefix)+"."):
		return "", "", fmt.Errorf("%q names a file: want a prefix, such as s3://%s/exports; files are named by the period", output, name)
	}
	return name, prefix, nil
}

// OpenBucket makes a client; nothing is asked of the storage yet.
func OpenBucket(cfg S3Config, name, prefix string) (*Bucket, error) {
	endpoint, secure, lookup := "s3.amazonaws.com", true, minio.BucketLookupAuto
	if cfg.Endpoint != "" {
		u, err := url.Parse(cfg.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.User != nil {
			return nil, ErrBadAddress
		}
		endpoint, secure, lookup = u.Host, u.Scheme == "https", minio.BucketLookupPath
	}
	chain := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Timeout: maxMetadataWait}},
	})
	value, err := chain.GetWithContext(&credentials.CredContext{Client: &http.Client{Timeout: maxMetadataWait}})
	if err != nil || value.AccessKeyID == "" {
		return nil, &Error{
			Trouble: NotAllowed, Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
			err: fmt.Errorf("s3://%s: there are no credentials for it", name),
		}
	}
	client, err := minio.New(endpoint, &minio.Options{Creds: chain, Secure: secure, Region: cfg.Region, BucketLookup: lookup, MaxRetries: maxS3Retries})
	if err != nil {
		return nil, fmt.Errorf("s3://%s: %w", name, err)
	}
	return &Bucket{client: client, name: name, prefix: prefix, scratch: cfg.Scratch}, nil
}

// NewSet begins a set in the bucket. It is written to the scratch folder first, into
// files without names: only then its hash and its length are known.
func (b *Bucket) NewSet(byHash bool) *Set { return &Set{dir: b.scratch, bucket: b, byHash: byHash} }

// publish writes the objects in their order, the manifest last. What is there already
// stays, and is refused unless it is the same.
func (b *Bucket) publish(ctx context.Context, drafts []*draft, files []File) error {
	for i, t := range drafts {
		if err := b.put(ctx, t, files[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bucket) put(ctx context.Context, t *draft, f File) error {
	key := path.Join(b.prefix, f.Name)
	if f.Bytes > maxObject {
		return cannotWrite("write s3://%s/%s: %d bytes are more than an object takes in one piece; write to a folder", b.name, key, f.Bytes)
	}
	for n := range maxTries {
		there, err := b.compare(ctx, key, f)
		// Without the right to list, what is not there looks forbidden, too.
		if forbidden := n == 0 && minio.ToErrorResponse(errors.Unwrap(errors.Unwrap(err))).Code == minio.AccessDenied; there || err != nil && !forbidden {
			return err
		}
		if _, err := t.file.Seek(0, io.SeekStart); err != nil {
			return cannotWrite("read what was written: %w", unwrapPath(err))
		}
		opts := minio.PutObjectOptions{ContentType: contentType(f.Name), DisableMultipart: true}
		// Over TLS the body is not signed: with its hash the storage refuses what was
		// damaged on the way.
		opts.UserMetadata = map[string]string{"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(t.sum.Sum(nil))}
		opts.SetMatchETagExcept("*")
		_, err = b.client.PutObject(ctx, b.name, key, t.file, f.Bytes, opts)
		switch code := minio.ToErrorResponse(err).Code; {
		case err == nil:
			return nil
		case code == "PreconditionFailed": // somebody was faster; the next look says with what
		case code == "ConditionalRequestConflict":
			if err := wait(ctx, time.Duration(n+1)*100*time.Millisecond); err != nil {
				return err
			}
		default:
			return b.trouble(ctx, "write", key, err)
		}
	}
	return cannotWrite("write s3://%s/%s: others write the same name again and again", b.name, key)
}

// compare reports whether an object is there with the same content. Another content is
// an error: nothing is ever replaced.
func (b *Bucket) compare(ctx context.Context, key string, f File) (there bool, err error) {
	object, err := b.client.GetObject(ctx, b.name, key, minio.GetObjectOptions{})
	if err != nil {
		return false, b.trouble(ctx, "read", key, err)
	}
	defer object.Close()
	sum := sha256.New()
	// One byte more than ours proves that it is another.
	n, err := io.Copy(sum, io.LimitReader(object, f.Bytes+1))
	switch {
	case minio.ToErrorResponse(err).Code == minio.NoSuchKey:
		return false, nil
	case err != nil:
		return false, b.trouble(ctx, "read", key, err)
	case n == f.Bytes && fmt.Sprintf("%x", sum.Sum(nil)) == f.SHA256:
		return true, nil
	}
	return false, &Error{
		Trouble: CannotCreate, Hint: "choose another prefix, or add --by-hash",
		err: fmt.Errorf("s3://%s/%s is there with another content, and is not replaced", b.name, key),
	}
}

// trouble says what the storage said, in terms of what to do.
func (b *Bucket) trouble(ctx context.Context, doing, key string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s s3://%s/%s: %w", doing, b.name, key, ctx.Err())
	}
	e := &Error{Trouble: CannotWrite, Hint: "run the same command again; what was written is found and left as it is",
		err: fmt.Errorf("%s s3://%s/%s: %w", doing, b.name, key, err)}
	switch minio.ToErrorResponse(err).Code {
	case minio.AccessDenied, "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken":
		e.Trouble, e.Hint = NotAllowed, "the key needs "+NeededRights+" for this bucket and prefix"
	case minio.NoSuchBucket:
		e.Trouble, e.Hint = CannotCreate, "create the bucket, or correct --output"
	}
	return e
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".csv":
		return "text/csv; charset=utf-8"
	case ".jsonl":
		return "application/x-ndjson"
	case ".xlsx":
		return "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	}
	return "application/json"
}
