package pricing

import (
	"cmp"
	"errors"
	"strings"

	"github.com/shopspring/decimal"
	"go.yaml.in/yaml/v3"

	"github.com/chargeonce/billing/ledger/money"
)

// list reads one list. ok is false if it can't be one, whatever else is wrong.
func (p *parser) list(n *yaml.Node) (l List, ok bool) {
	l = List{Accounts: map[string]decimal.Decimal{}, Metrics: map[string]Price{}, Units: map[string]string{}}
	before := p.mistakes.Total
	var from, currency, fee, accounts, metrics *yaml.Node
	for key, value := range p.mapping(n, "list", "valid_from", "currency", "base_fee", "accounts", "metrics") {
		*map[string]**yaml.Node{"valid_from": &from, "currency": &currency, "base_fee": &fee, "accounts": &accounts, "metrics": &metrics}[key.Value] = value
	}
	if n.Kind != yaml.MappingNode {
		return l, false
	}
	p.month(n, from, &l)
	p.currency(n, currency, &l)
	if fee != nil {
		l.BaseFee = p.amount(fee, "base_fee", l.Currency)
	}
	if accounts != nil {
		p.accounts(accounts, &l)
	}
	if metrics != nil {
		p.metrics(metrics, &l)
	}
	if fee == nil && accounts == nil && metrics == nil {
		p.refuse(n, "list", "has no price: give it base_fee, accounts or metrics")
	}
	if p.mistakes.Total > before {
		return l, false
	}
	key := l.ValidFrom + " " + string(l.Currency)
	if line := p.seen[key]; line > 0 {
		p.refuse(from, "valid_from", "the list of %s from %s stands in line %d already: keep one of them", l.Currency, l.ValidFrom, line)
		return l, false
	}
	p.seen[key] = n.Line
	return l, true
}

func (p *parser) month(list, n *yaml.Node, l *List) {
	if n == nil {
		p.refuse(list, "list", "valid_from is missing: type the first month, such as valid_from: 2026-10")
		return
	}
	if n.Kind != yaml.ScalarNode || p.rules.Period(n.Value) != nil {
		p.refuse(n, "valid_from", "want a calendar month such as 2026-10: prices begin with a month")
		return
	}
	l.ValidFrom = n.Value
}

func (p *parser) currency(list, n *yaml.Node, l *List) {
	if n == nil {
		p.refuse(list, "list", "currency is missing: type it, such as currency: usd")
		return
	}
	c, err := money.ParseCurrency(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		p.refuse(n, "currency", "want a three-letter code of a currency that Stripe charges in, such as usd")
		return
	}
	l.Currency = c
}

func (p *parser) accounts(n *yaml.Node, l *List) {
	for key, value := range p.mapping(n, "accounts") {
		id := key.Value
		if p.rules.AccountID(id) != nil || key.Tag == "!!null" {
			p.refuse(key, "accounts", "is no account id: want it exactly as it was imported, in quotes")
			continue
		}
		there := false
		for k, v := range p.mapping(value, "account", "base_fee") {
			if k.Value == "base_fee" {
				l.Accounts[id], there = p.amount(v, "base_fee", l.Currency), true
			}
		}
		if !there && value.Kind == yaml.MappingNode {
			p.refuse(key, "account", "has no base_fee: type one, such as {base_fee: \"100.00\"}, or remove the account")
		}
	}
}

func (p *parser) metrics(n *yaml.Node, l *List) {
	for key, value := range p.mapping(n, "metrics") {
		name, ok := p.name(key, "metric", maxNameBytes)
		if !ok {
			continue
		}
		var price PerUnit
		there := false
		for k, v := range p.mapping(value, "metric", "unit_price", "included", "unit") {
			switch k.Value {
			case "unit_price":
				price.UnitPrice, there = p.number(v, "unit_price"), true
			case "included":
				price.Included = p.number(v, "included")
			case "unit":
				p.unit(v, name, l)
			}
		}
		if !there && value.Kind == yaml.MappingNode {
			p.refuse(key, "metric", "has no unit_price: type one, such as unit_price: \"0.0049\", or \"0\" if it is free")
		}
		l.Metrics[name] = price
	}
}

// unit reads what a metric is counted in, which is the same in every list.
func (p *parser) unit(n *yaml.Node, metric string, l *List) {
	unit, ok := p.name(n, "unit", maxUnitBytes)
	if !ok {
		return
	}
	if other, there := p.units[metric]; there && other.unit != unit {
		p.refuse(n, "unit", "%q is counted in %q in line %d: a metric has one unit in all lists", metric, other.unit, other.line)
		return
	}
	p.units[metric], l.Units[metric] = unitAt{unit, n.Line}, unit
}

// number reads a quantity or a price of zero or more.
func (p *parser) number(n *yaml.Node, what string) decimal.Decimal {
	d, err := money.Parse(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil:
		p.refuse(n, what, "want plain digits, such as \"0.0049\" or 1000: no exponent, no thousands separator, no currency sign, at most %d digits before and %d after the point",
			money.MaxWholeDigits, money.MaxFractionDigits)
	case len(n.Value) > 1 && n.Value[0] == '0' && n.Value[1] != '.':
		// YAML of old takes 010 for eight.
		p.refuse(n, what, "begins with a zero: want %s", cmp.Or(strings.TrimLeft(n.Value, "0"), "0"))
	case d.Sign() < 0:
		p.refuse(n, what, "is below zero: want zero or more; to give something back, import a credit as an invoice")
	default:
		return d
	}
	return decimal.Zero
}

// amount reads a fee, which is charged as it stands and so must be chargeable.
func (p *parser) amount(n *yaml.Node, what string, c money.Currency) decimal.Decimal {
	before := p.mistakes.Total
	d := p.number(n, what)
	if p.mistakes.Total > before || c == "" {
		return d
	}
	_, err := money.ToMinor(d, c)
	switch {
	case errors.Is(err, money.ErrOverflow):
		p.refuse(n, what, "is larger than Stripe charges at once, %s %s", money.FormatMinor(money.MaxMinor, c), c)
	case err != nil:
		p.refuse(n, what, "%s is charged with %d digits after the point: round it to %s", c, c.ChargeDigits(), money.Format(money.Round(d, c), c))
	}
	return d
}
