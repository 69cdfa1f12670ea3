//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/pgserver"
)

// postgres is a server that belongs to the demo alone.
type postgres struct {
	url   string
	about string
	stop  func() error
}

// startPostgres takes what the machine has: local binaries, else Docker, else
// binaries from the net (Debian's package as root, embedded-postgres as an
// ordinary user). Where nothing works the error says what to install.
func startPostgres(ctx context.Context, log io.Writer) (*postgres, error) {
	p, err := localPostgres(ctx, pgserver.Options{Durable: true, Log: log})
	if !errors.Is(err, pgserver.ErrNotFound) {
		return p, err
	}
	if exec.CommandContext(ctx, "docker", "info").Run() == nil {
		p, dockerErr := dockerPostgres(ctx, log)
		if dockerErr == nil {
			return p, nil
		}
		fmt.Fprintln(log, dockerErr)
	}
	return localPostgres(ctx, pgserver.Options{Durable: true, Log: log, Install: true, Download: true})
}

func localPostgres(ctx context.Context, o pgserver.Options) (*postgres, error) {
	s, err := pgserver.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	return &postgres{
		url:   s.URL(""),
		about: s.Describe(),
		stop:  func() error { return s.Stop(pgserver.Fast) },
	}, nil
}

// dockerPostgres runs a container that removes itself once stopped. The image
// can be named in BILLING_TEST_PG_IMAGE, as for the tests.
func dockerPostgres(ctx context.Context, log io.Writer) (*postgres, error) {
	image := os.Getenv("BILLING_TEST_PG_IMAGE")
	if image == "" {
		image = "postgres:17-alpine"
	}
	fmt.Fprintf(log, "no PostgreSQL on this machine: starting %s with Docker\n", image)
	id, err := docker(ctx, "run", "--detach", "--rm", "--publish", "127.0.0.1::5432", "--env", "POSTGRES_HOST_AUTH_METHOD=trust", image)
	if err != nil {
		return nil, err
	}
	stop := func() error {
		_, err := docker(context.WithoutCancel(ctx), "rm", "--force", id)
		return err
	}
	address, err := docker(ctx, "port", id, "5432/tcp")
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	address, _, _ = strings.Cut(address, "\n")
	p := &postgres{
		url:   "postgres://postgres@" + address + "/postgres?sslmode=disable",
		about: "Docker image " + image,
		stop:  stop,
	}
	if err := p.waitReady(ctx); err != nil {
		return nil, errors.Join(err, stop())
	}
	return p, nil
}

// docker runs one docker command and returns what it printed.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// waitReady returns once the server takes connections, or after a minute. The
// image's first server, which only sets things up, does not listen on TCP.
func (p *postgres) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		db, err := pgx.Connect(ctx, p.url)
		if err == nil {
			return db.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for Postgres in Docker: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
