package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/urfave/cli/v2"
)

// templateHint says where the fields of a template are listed.
const templateHint = "docs/monitoring.md lists the fields; nothing was sent"

// maxPing bounds what a template makes, in bytes: a loop in it may have no end.
const maxPing = 64 << 10

// headerName is a name that HTTP takes.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// templateShape makes pings of the templates of --checkin template. Each is tried
// with every event, so that a mistake is found now and not at the end of a month.
func templateShape(c *cli.Context, at setting) (func(checkin) (ping, error), error) {
	method := strings.ToUpper(c.String("checkin-method"))
	if method == "" {
		method = http.MethodPost
	}
	if !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodPut}, method) {
		return nil, usagef("--checkin-method %q: want GET, POST or PUT", method)
	}
	body, err := bodySetting(c)
	if err != nil {
		return nil, err
	}
	header, err := secretSetting("BILLING_CHECKIN_HEADER")
	if err != nil {
		return nil, err
	}
	headers, err := parseHeaders(header)
	if err != nil {
		return nil, err
	}
	urlTemplate, err := parseTemplate(at)
	if err != nil {
		return nil, err
	}
	bodyTemplate, err := parseTemplate(body)
	if err != nil {
		return nil, err
	}
	shape := func(ev checkin) (p ping, err error) {
		p = ping{method: method, header: headers.Clone()}
		if p.url, err = render(urlTemplate, ev); err != nil || p.url == "" {
			return p, err
		}
		if _, err = parsePingURL(p.url); err != nil {
			return p, configError{fmt.Errorf("%s, for the event %q: %w", at.from, ev.Event, err), templateHint}
		}
		if p.body, err = render(bodyTemplate, ev); strings.HasPrefix(p.body, "{") && p.header.Get("Content-Type") == "" {
			p.header.Set("Content-Type", "application/json")
		}
		return p, err
	}
	return shape, tryShape(shape, at)
}

// tryShape makes every ping once.
func tryShape(shape func(checkin) (ping, error), at setting) error {
	silent := true
	for _, event := range []string{eventStart, eventComplete, eventFail} {
		p, err := shape(newCheckin(event))
		if err != nil {
			return err
		}
		silent = silent && p.url == ""
	}
	if silent {
		return configError{fmt.Errorf("%s gives no URL for any event", at.from), templateHint}
	}
	return nil
}

// parseHeaders reads a header on each line.
func parseHeaders(from setting) (http.Header, error) {
	headers := http.Header{}
	for n, line := range strings.Split(from.text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, there := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !there || !headerName.MatchString(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, configError{fmt.Errorf("%s, line %d: want a header such as X-API-Key: secret", from.from, n+1), templateHint}
		}
		headers.Add(name, value)
	}
	return headers, nil
}

// parseTemplate reads a template and refuses fields that no check-in has, also in
// branches that are seldom taken.
func parseTemplate(from setting) (*template.Template, error) {
	t, err := template.New(from.from).Option("missingkey=error").Funcs(template.FuncMap{"json": jsonText}).Parse(from.text)
	if err != nil {
		return nil, templateError(err)
	}
	for _, part := range t.Templates() {
		if part.Tree == nil {
			continue
		}
		if err := (fieldCheck{part.Tree}).visit(part.Root); err != nil {
			return nil, templateError(err)
		}
	}
	return t, nil
}

func jsonText(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func render(t *template.Template, ev checkin) (string, error) {
	var text boundedText
	err := t.Execute(&text, ev)
	switch {
	case errors.Is(err, errPingTooLong):
		return "", configError{fmt.Errorf("%s, for the event %q: %w of %d bytes", t.Name(), ev.Event, err, maxPing), templateHint}
	case err != nil:
		return "", templateError(err)
	}
	return strings.TrimSpace(text.String()), nil
}

var errPingTooLong = errors.New("it makes more than a message")

// boundedText takes as much as one message may be.
type boundedText struct{ strings.Builder }

func (b *boundedText) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxPing {
		return 0, errPingTooLong
	}
	return b.Builder.Write(p)
}

// templateError is as text/template says it, which names the setting, the line and
// what is wrong there.
func templateError(err error) error {
	return configError{errors.New(strings.TrimPrefix(err.Error(), "template: ")), templateHint}
}

// checkinFields are what a template may name.
var checkinFields = func() (names []string) {
	for i, t := 0, reflect.TypeFor[checkin](); i < t.NumField(); i++ {
		names = append(names, t.Field(i).Name)
	}
	return names
}()

// fieldCheck looks through a template for fields that do not exist. Where with or
// range gave the dot another meaning it does not look.
type fieldCheck struct{ tree *parse.Tree }

func (f fieldCheck) visit(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			return visitAll(f, n.Nodes)
		}
	case *parse.PipeNode:
		if n != nil {
			return visitAll(f, n.Cmds)
		}
	case *parse.CommandNode:
		return visitAll(f, n.Args)
	case *parse.ActionNode:
		return f.visit(n.Pipe)
	case *parse.TemplateNode:
		return f.visit(n.Pipe)
	case *parse.ChainNode:
		return f.visit(n.Node)
	case *parse.IfNode:
		return visitAll(f, []parse.Node{n.Pipe, n.List, n.ElseList})
	case *parse.WithNode:
		return visitAll(f, []parse.Node{n.Pipe, n.ElseList})
	case *parse.RangeNode:
		return visitAll(f, []parse.Node{n.Pipe, n.ElseList})
	case *parse.FieldNode:
		if !slices.Contains(checkinFields, n.Ident[0]) {
			where, _ := f.tree.ErrorContext(n)
			return fmt.Errorf("%s: there is no field %s", where, n)
		}
	}
	return nil
}

func visitAll[N parse.Node](f fieldCheck, nodes []N) error {
	for _, n := range nodes {
		if err := f.visit(n); err != nil {
			return err
		}
	}
	return nil
}

// bodySetting reads the body, which is no secret.
func bodySetting(c *cli.Context) (setting, error) {
	if text := strings.TrimSpace(c.String("checkin-body")); text != strings.TrimSpace(os.Getenv("BILLING_CHECKIN_BODY")) {
		return setting{text, "--checkin-body"}, nil
	}
	return secretSetting("BILLING_CHECKIN_BODY")
}
