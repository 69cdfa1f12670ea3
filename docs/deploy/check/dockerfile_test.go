package check

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stages are those of the Dockerfile, as BuildKit reads them; its warnings are errors.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	result, err := parser.Parse(bytes.NewReader(read(t, "../Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range result.Warnings {
		t.Errorf("Dockerfile: %s", w.Short)
	}
	warn := func(rule, description, _, message string, _ []parser.Range) {
		t.Errorf("Dockerfile: %s: %s (%s)", rule, message, description)
	}
	list, _, err := instructions.Parse(result.AST, linter.New(&linter.Config{Warn: warn}))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The image starts from nothing and has two files, the program and the certificates that it needs to trust Stripe's;
// it runs as a user that is a number other than 0, without a shell.
func TestTheImageHasTheProgramAndCertificatesOnly(t *testing.T) {
	list := stages(t)
	if len(list) != 2 {
		t.Fatalf("%d stages, want one that builds and one that stays", len(list))
	}
	build, final := list[0], list[1]
	if final.BaseName != "scratch" {
		t.Errorf("the image is made from %s, want scratch", final.BaseName)
	}
	copied := map[string]string{}
	user, entrypoint := "", ""
	for _, command := range final.Commands {
		switch c := command.(type) {
		case *instructions.CopyCommand:
			if c.From != build.Name || len(c.SourcePaths) != 1 {
				t.Errorf("%s: want one file of the stage %q", c, build.Name)
			}
			copied[c.DestPath] = c.SourcePaths[0]
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			if c.PrependShell {
				t.Errorf("%s: needs a shell, and there is none", c)
			}
			entrypoint = strings.Join(c.CmdLine, " ")
		default:
			t.Errorf("%s in the last stage", command.Name())
		}
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	if len(copied) != 2 || copied["/billing"] != "/billing" || copied[bundle] != bundle || entrypoint != "/billing" {
		t.Errorf("the image has %v and starts %q", copied, entrypoint)
	}
	uid, err := strconv.Atoi(strings.Split(user, ":")[0])
	if err != nil || uid == 0 {
		t.Errorf("the user is %q, want a number that is not root's", user)
	}
	for name, job := range cronJobs(t) {
		if pod := job.Spec.JobTemplate.Spec.Template.Spec; *pod.SecurityContext.RunAsUser != int64(uid) {
			t.Errorf("%s runs as %d, the image as %d", name, *pod.SecurityContext.RunAsUser, uid)
		}
	}
}

// The program in the image needs no C library, no zone files, and is of the Go that go.mod asks for.
func TestTheImageNeedsNoFilesOfItsHost(t *testing.T) {
	text := string(read(t, "../Dockerfile"))
	if !strings.Contains(text, "RUN CGO_ENABLED=0 go build ") {
		t.Error("the program may need a C library")
	}
	if !bytes.Contains(read(t, "../../../cmd/billing/main.go"), []byte(`_ "time/tzdata"`)) {
		t.Error("the program has no zone data, and neither has the image")
	}
	image := regexp.MustCompile(`(?m)^ARG GO_IMAGE=golang:(\d+\.\d+)$`).FindStringSubmatch(text)
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(read(t, "../../../go.mod"))
	if image == nil || module == nil || image[1] != string(module[1]) {
		t.Errorf("the image is built by Go %v, go.mod asks for %s", image, module)
	}
}
