package pricing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// List is what things cost in one currency from a month on, until another list of the
// currency begins.
type List struct {
	// ValidFrom is the first month, such as 2026-10. Months are calendar months.
	ValidFrom string
	Currency  money.Currency
	// Version is which import of this month and currency it is, 0 in a file.
	Version int
	// BaseFee is what every active account owes for a month, zero for nothing.
	BaseFee decimal.Decimal
	// Accounts have a base fee of their own.
	Accounts map[string]decimal.Decimal
	// Metrics have their price by name.
	Metrics map[string]Price
	// Units name what is counted, by metric; a metric without one is not in it.
	Units map[string]string
}

// BaseFeeOf is what an account owes for a month whatever it uses.
func (l List) BaseFeeOf(account string) decimal.Decimal {
	if fee, own := l.Accounts[account]; own {
		return fee
	}
	return l.BaseFee
}

// listJSON is a list as the ledger keeps it: keys in order, numbers as shortest text,
// so that two files that say the same come to the same bytes.
type listJSON struct {
	ValidFrom string                 `json:"valid_from"`
	Currency  string                 `json:"currency"`
	BaseFee   string                 `json:"base_fee"`
	Accounts  map[string]accountJSON `json:"accounts"`
	Metrics   map[string]metricJSON  `json:"metrics"`
}

type accountJSON struct {
	BaseFee string `json:"base_fee"`
}

type metricJSON struct {
	UnitPrice string `json:"unit_price"`
	Included  string `json:"included"`
	Unit      string `json:"unit"`
}

// Content is the list as text for the ledger, the same for lists that say the same.
// ReadContent reads it back.
func (l List) Content() string {
	out := listJSON{ValidFrom: l.ValidFrom, Currency: string(l.Currency), BaseFee: l.BaseFee.String(),
		Accounts: map[string]accountJSON{}, Metrics: map[string]metricJSON{}}
	for id, fee := range l.Accounts {
		out.Accounts[id] = accountJSON{fee.String()}
	}
	for name, price := range l.Metrics {
		t := price.Terms()
		out.Metrics[name] = metricJSON{t.UnitPrice.String(), t.Included.String(), l.Units[name]}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		panic(fmt.Sprintf("pricing: %v", err)) // strings in maps
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// ReadContent reads what Content wrote. An error means that what the ledger keeps was
// changed by other hands: it wraps none of this package's.
func ReadContent(content string) (List, error) {
	var in listJSON
	dec := json.NewDecoder(bytes.NewReader([]byte(content)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return List{}, fmt.Errorf("read a price list: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return List{}, errors.New("read a price list: more than one stands there")
	}
	var failed error
	number := func(text string) decimal.Decimal {
		d, err := money.Parse(text)
		if err != nil && failed == nil {
			failed = err
		}
		return d
	}
	l := List{ValidFrom: in.ValidFrom, Currency: money.Currency(in.Currency), BaseFee: number(in.BaseFee),
		Accounts: map[string]decimal.Decimal{}, Metrics: map[string]Price{}, Units: map[string]string{}}
	for id, a := range in.Accounts {
		l.Accounts[id] = number(a.BaseFee)
	}
	for name, m := range in.Metrics {
		l.Metrics[name] = PerUnit{Included: number(m.Included), UnitPrice: number(m.UnitPrice)}
		if m.Unit != "" {
			l.Units[name] = m.Unit
		}
	}
	if failed == nil && !l.Currency.Known() {
		failed = money.ErrUnknownCurrency
	}
	if failed != nil {
		return List{}, fmt.Errorf("read a price list: %w", failed)
	}
	return l, nil
}
