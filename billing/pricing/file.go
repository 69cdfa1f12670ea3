package pricing

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/chargeonce/billing/ledger/sheet"
)

const (
	// MaxFileBytes bounds a file of prices: ten thousand accounts with a fee of their
	// own take one of these.
	MaxFileBytes = 4 << 20
	// maxNameBytes bounds the name of a metric, as the ledger's tables do.
	maxNameBytes = 255
	// maxUnitBytes bounds the name of what is counted.
	maxUnitBytes = 40
)

// Rules are what the ledger says of names that stand in a file.
type Rules struct {
	// Period and AccountID return an error for what can't be one.
	Period, AccountID func(text string) error
}

// Parse reads a file of prices, whose name is for messages. Lists come in the order of
// their month and currency. The error is *sheet.Mistakes: every mistake with its line,
// its column, what stands there and what to type instead. Numbers are taken by their
// text, digit by digit; no number of YAML is ever made of them.
func Parse(name string, data []byte, rules Rules) ([]List, error) {
	p := &parser{rules: rules, mistakes: sheet.Mistakes{Name: name}, seen: map[string]int{}, units: map[string]unitAt{}}
	root, ok := p.read(data)
	if !ok {
		return nil, p.mistakes.Err()
	}
	var lists []List
	for key, value := range p.mapping(root, "the file", "prices") {
		if key.Value != "prices" {
			continue
		}
		if value.Kind != yaml.SequenceNode || len(value.Content) == 0 {
			p.refuse(value, "prices", "want one or more lists, each beginning with \"- valid_from:\"")
			continue
		}
		for _, node := range value.Content {
			if l, ok := p.list(node); ok {
				lists = append(lists, l)
			}
		}
	}
	slices.SortFunc(lists, func(a, b List) int {
		return cmp.Or(cmp.Compare(a.ValidFrom, b.ValidFrom), cmp.Compare(a.Currency, b.Currency))
	})
	return lists, p.mistakes.Err()
}

type parser struct {
	rules    Rules
	mistakes sheet.Mistakes
	seen     map[string]int // the line of each month and currency
	units    map[string]unitAt
}

// unitAt is what a metric is counted in, and where that stands.
type unitAt struct {
	unit string
	line int
}

// yamlLine is where the library says that it could not go on.
var yamlLine = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?`)

// read makes a tree of the file, and refuses what is not one plain document.
func (p *parser) read(data []byte) (*yaml.Node, bool) {
	name := p.mistakes.Name
	if len(data) > MaxFileBytes {
		p.mistakes.Add("file", "%s is larger than %d bytes: prices are few; is it the right file?", name, MaxFileBytes)
		return nil, false
	}
	if !utf8.Valid(data) {
		p.mistakes.Add("file", "%s is not UTF-8: save it as UTF-8", name)
		return nil, false
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		p.mistakes.Add("file", "%s is empty: want \"prices:\" with one or more lists below", name)
		return nil, false
	case err != nil:
		p.syntax(err)
		return nil, false
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		p.mistakes.Add("file", "%s has a second document behind \"---\": put all lists below one \"prices:\"", name)
		return nil, false
	}
	if bad := unplain(doc.Content[0]); bad != nil {
		p.mistakes.Add("file", "%s:%d:%d: anchors, aliases and tags (&name, *name, !name) are not read: write the value out", name, bad.Line, bad.Column)
		return nil, false
	}
	return doc.Content[0], true
}

func (p *parser) syntax(err error) {
	text := err.Error()
	at, hint := p.mistakes.Name, ""
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if text = text[len(m[0]):]; m[1] != "" {
			at += ":" + m[1]
		}
	}
	if strings.Contains(text, "start any token") || strings.Contains(text, "tab") {
		hint = "; indent with blanks, not with tabs"
	}
	p.mistakes.Add("file", "%s: this is no YAML: %s%s", at, text, hint)
}

// unplain finds what stands for something else than itself.
func unplain(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return n
	}
	for _, child := range n.Content {
		if bad := unplain(child); bad != nil {
			return bad
		}
	}
	return nil
}

func (p *parser) refuse(n *yaml.Node, what, format string, args ...any) {
	value := ""
	if n.Kind == yaml.ScalarNode {
		value = " " + sheet.Show(n.Value)
	}
	p.mistakes.Add(what, "%s:%d:%d: %s%s: %s", p.mistakes.Name, n.Line, n.Column, what, value, fmt.Sprintf(format, args...))
}

// mapping goes through the keys of a mapping that may have these, or any where none is
// named. What is no mapping, an unknown key and one that stands twice are mistakes.
func (p *parser) mapping(n *yaml.Node, what string, known ...string) func(func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			p.refuse(n, what, "want %s", orNames(known))
			return
		}
		lines := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch line, twice := lines[key.Value]; {
			case key.Kind != yaml.ScalarNode:
				p.refuse(key, what, "want a name here")
				continue
			case twice:
				p.refuse(key, what, "stands in line %d already: keep one of them", line)
				continue
			case len(known) > 0 && !slices.Contains(known, key.Value):
				p.refuse(key, what, "is not known here; there are %s", strings.Join(known, ", "))
				continue
			}
			lines[key.Value] = key.Line
			if !yield(key, value) {
				return
			}
		}
	}
}

func orNames(known []string) string {
	if len(known) == 0 {
		return "names with values, such as \"acme: {base_fee: \"100.00\"}\""
	}
	return "a mapping with " + strings.Join(known, ", ")
}

// name checks the name of a metric or a unit.
func (p *parser) name(n *yaml.Node, what string, most int) (string, bool) {
	text := n.Value
	switch {
	case n.Kind != yaml.ScalarNode:
		p.refuse(n, what, "want a name")
	case n.Tag == "!!null" || strings.TrimSpace(text) == "":
		p.refuse(n, what, "is blank: want a name, such as api_calls")
	case strings.TrimSpace(text) != text:
		p.refuse(n, what, "has space around it: remove that")
	case len(text) > most:
		p.refuse(n, what, "has %d bytes, %d are allowed", len(text), most)
	case strings.ContainsFunc(text, unicode.IsControl):
		p.refuse(n, what, "has a control character: remove it")
	default:
		return text, true
	}
	return "", false
}
