package gateway

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDescription is Stripe's limit for a description, in characters.
const MaxDescription = 1000

// Names of the metadata that every PaymentIntent of ours carries.
const (
	metaKey     = "billing_key"
	metaJob     = "billing_job"
	metaPeriod  = "billing_period"
	metaAccount = "billing_account"
	metaTry     = "billing_try"
)

// BodyParams is what a charge asks of Stripe.
type BodyParams struct {
	// Amount is in Stripe's unit (money.ToMinor), Currency in lower case.
	Amount   int64
	Currency string
	// Customer and PaymentMethod are Stripe ids.
	Customer      string
	PaymentMethod string
	// Description is shown on receipts. Beyond MaxDescription characters it is
	// cut; an empty one is left out, because Stripe refuses an empty value.
	Description string
	// BillingKey, Job, Period, Account and Try identify the debt.
	BillingKey string
	Job        string
	Period     string
	Account    string
	Try        int
}

// Body returns the form-encoded request for one charge. The order and the
// spelling are part of the ledger: a key is only ever sent with the same bytes.
// So the text depends on p alone, never on a map, a clock or the build.
func Body(p BodyParams) string {
	return string(AppendBody(make([]byte, 0, 640), p))
}

// AppendBody appends Body(p) to dst and returns it.
func AppendBody(dst []byte, p BodyParams) []byte {
	dst = append(dst, "amount="...)
	dst = strconv.AppendInt(dst, p.Amount, 10)
	dst = appendField(dst, "currency", p.Currency)
	dst = appendField(dst, "customer", p.Customer)
	dst = appendField(dst, "payment_method", p.PaymentMethod)
	dst = append(dst, "&confirm=true&off_session=true"+
		"&automatic_payment_methods[enabled]=true&automatic_payment_methods[allow_redirects]=never"...)
	if description := cutDescription(p.Description); description != "" {
		dst = appendField(dst, "description", description)
	}
	dst = appendField(dst, "metadata["+metaKey+"]", p.BillingKey)
	dst = appendField(dst, "metadata["+metaJob+"]", p.Job)
	dst = appendField(dst, "metadata["+metaPeriod+"]", p.Period)
	dst = appendField(dst, "metadata["+metaAccount+"]", p.Account)
	dst = append(dst, "&metadata["+metaTry+"]="...)
	return strconv.AppendInt(dst, int64(p.Try), 10)
}

func appendField(dst []byte, name, value string) []byte {
	dst = append(dst, '&')
	dst = append(dst, name...)
	dst = append(dst, '=')
	return appendEscaped(dst, value)
}

// appendEscaped is url.QueryEscape without its allocations.
func appendEscaped(dst []byte, value string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(value) {
		switch b := value[i]; {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '-', b == '_', b == '.', b == '~':
			dst = append(dst, b)
		case b == ' ':
			dst = append(dst, '+')
		default:
			dst = append(dst, '%', hex[b>>4], hex[b&15])
		}
	}
	return dst
}

// cutDescription keeps at most MaxDescription characters, and makes the text
// valid UTF-8, which Stripe insists on.
func cutDescription(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= MaxDescription || utf8.RuneCountInString(text) <= MaxDescription {
		return text
	}
	characters := 0
	for i := range text {
		if characters == MaxDescription {
			return text[:i]
		}
		characters++
	}
	return text
}
