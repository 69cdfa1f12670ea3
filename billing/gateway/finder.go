package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	pageSize = 100
	// maxPages bounds one list: twenty million PaymentIntents.
	maxPages = 200_000
	// maxSearchPages bounds one search; ten keys have few hits.
	maxSearchPages = 100
	// MaxSearchKeys is the most clauses that Stripe takes in one query.
	MaxSearchKeys = 10
)

// ErrForeign says that a list held something that was not asked for.
var ErrForeign = errors.New("the list holds an object that was not asked for")

// Finder reads from Stripe. It has no way to write: its connection refuses
// anything but a GET, and a read-only restricted key is enough for it. Every
// error of Stripe's or of the way there is an *Error.
type Finder struct {
	client *Client
}

// Meta says where an answer came from.
type Meta struct {
	RequestID string
	// Date is Stripe's clock when it answered.
	Date time.Time
	// Page counts the pages of a list from 1.
	Page int
	// Last is true for the last page of a list.
	Last bool
}

func metaOf(r Reply) Meta {
	a := answerOf(r)
	return Meta{RequestID: a.RequestID, Date: a.StripeDate}
}

// Get reads one PaymentIntent by its id, as it is now.
func (f *Finder) Get(ctx context.Context, stripeAccount, id string) (PaymentIntent, Meta, error) {
	return f.get(ctx, stripeAccount, id, "")
}

// GetWithCharge is Get with what was refunded and disputed; the key must be
// allowed to read charges.
func (f *Finder) GetWithCharge(ctx context.Context, stripeAccount, id string) (PaymentIntent, Meta, error) {
	return f.get(ctx, stripeAccount, id, "expand[]=latest_charge")
}

func (f *Finder) get(ctx context.Context, stripeAccount, id, query string) (PaymentIntent, Meta, error) {
	doing := fmt.Sprintf("read PaymentIntent %.80s", id)
	// An empty id would be the list.
	if !plainID(id) {
		return PaymentIntent{}, Meta{}, &Error{Doing: doing, Kind: KindRefused, Message: "not a PaymentIntent id"}
	}
	object, meta, err := read[intentJSON](ctx, f.client, f.client.reads, get{doing, stripeAccount, intentsPath + "/" + id, query})
	if err != nil {
		return PaymentIntent{}, meta, err
	}
	pi, err := f.check(doing, &object, meta)
	if err == nil && pi.ID != id {
		err = &Error{Doing: doing, Kind: KindForeign, RequestID: meta.RequestID, Err: fmt.Errorf("%w: %.80s", ErrForeign, pi.ID)}
	}
	return pi, meta, err
}

// check returns a PaymentIntent of ours, of the key's mode.
func (f *Finder) check(doing string, object *intentJSON, meta Meta) (PaymentIntent, error) {
	pi, err := object.intent()
	if err != nil {
		return PaymentIntent{}, &Error{Doing: doing, Kind: KindBadAnswer, RequestID: meta.RequestID, Err: err}
	}
	if pi.Livemode != f.client.livemode {
		return PaymentIntent{}, &Error{
			Doing: doing, Kind: KindWrongMode, RequestID: meta.RequestID,
			Message: fmt.Sprintf("%s has livemode %t, the key is for %s", pi.ID, pi.Livemode, f.client.Mode()),
		}
	}
	return pi, nil
}

// ListQuery says which PaymentIntents to read.
type ListQuery struct {
	// StripeAccount is a connected account, empty for one's own.
	StripeAccount string
	// Customer limits the list to one customer; empty is all.
	Customer string
	// CreatedFrom and CreatedTo limit the time of creation: from inclusive, to
	// exclusive, both widened to whole seconds, which is all that Stripe keeps.
	// Zero is no limit.
	CreatedFrom, CreatedTo time.Time
	// Charges also reads what was refunded and disputed.
	Charges bool
	// EachPage gets every page, newest first. Its error ends the list, and is
	// returned wrapped.
	EachPage func(page []PaymentIntent, meta Meta) error
}

// List reads every page. It returns nil only if the list was complete: read to
// its end, the filter on every page, nothing foreign in it, no page twice.
// Absence may be concluded from it then, and never otherwise.
func (f *Finder) List(ctx context.Context, q ListQuery) error {
	seen := make(map[string]bool)
	for n, after := 1, ""; ; n++ {
		doing := fmt.Sprintf("list PaymentIntents, page %d", n)
		if n > maxPages {
			return &Error{Doing: doing, Kind: KindBadAnswer, Message: "the list does not end"}
		}
		page, more, meta, err := f.page(ctx, doing, q, after)
		if err != nil {
			return err
		}
		meta.Page, meta.Last = n, !more
		if more && len(page) == 0 {
			return &Error{Doing: doing, Kind: KindBadAnswer, RequestID: meta.RequestID, Message: "an empty page says that there is more"}
		}
		if err := advance(seen, page); err != nil {
			return &Error{Doing: doing, Kind: KindBadAnswer, RequestID: meta.RequestID, Err: err}
		}
		if q.EachPage != nil {
			if err := q.EachPage(page, meta); err != nil {
				return fmt.Errorf("%s: %w", doing, err)
			}
		}
		if !more {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// advance refuses a page that does not lead on: its first and last ids were the
// ends of a page before.
func advance(seen map[string]bool, page []PaymentIntent) error {
	within := make(map[string]bool, len(page))
	for _, pi := range page {
		if within[pi.ID] || seen[pi.ID] {
			return fmt.Errorf("%s came twice", pi.ID)
		}
		within[pi.ID] = true
	}
	if len(page) > 0 {
		seen[page[0].ID], seen[page[len(page)-1].ID] = true, true
	}
	return nil
}

// page reads one page and checks all of it.
func (f *Finder) page(ctx context.Context, doing string, q ListQuery, after string) (page []PaymentIntent, more bool, meta Meta, err error) {
	list, meta, err := read[listJSON](ctx, f.client, f.client.reads, get{doing, q.StripeAccount, intentsPath, q.encode(after)})
	if err != nil {
		return nil, false, meta, err
	}
	page, err = f.intents(doing, &list, meta)
	if err != nil {
		return nil, false, meta, err
	}
	for _, pi := range page {
		if what := q.foreign(pi); what != "" {
			return nil, false, meta, &Error{
				Doing: doing, Kind: KindForeign, RequestID: meta.RequestID, Err: fmt.Errorf("%w: %s by its %s", ErrForeign, pi.ID, what),
			}
		}
	}
	return page, *list.HasMore, meta, nil
}

// listJSON is a page of a list or of a search.
type listJSON struct {
	Object   string        `json:"object"`
	Data     *[]intentJSON `json:"data"`
	HasMore  *bool         `json:"has_more"`
	NextPage string        `json:"next_page"`
}

// intents checks a page's shape and every object in it.
func (f *Finder) intents(doing string, list *listJSON, meta Meta) ([]PaymentIntent, error) {
	if list.Data == nil || list.HasMore == nil {
		return nil, &Error{Doing: doing, Kind: KindBadAnswer, RequestID: meta.RequestID, Message: "not a list"}
	}
	page := make([]PaymentIntent, 0, len(*list.Data))
	for i := range *list.Data {
		pi, err := f.check(doing, &(*list.Data)[i], meta)
		if err != nil {
			return nil, err
		}
		page = append(page, pi)
	}
	return page, nil
}

// encode writes the query of one page; the filter stands on every page.
func (q ListQuery) encode(after string) string {
	query := "limit=" + strconv.Itoa(pageSize)
	if q.Customer != "" {
		query += "&customer=" + url.QueryEscape(q.Customer)
	}
	if from, limited := q.from(); limited {
		query += "&created[gte]=" + strconv.FormatInt(from, 10)
	}
	if to, limited := q.to(); limited {
		query += "&created[lt]=" + strconv.FormatInt(to, 10)
	}
	if q.Charges {
		query += "&expand[]=data.latest_charge"
	}
	if after != "" {
		query += "&starting_after=" + url.QueryEscape(after)
	}
	return query
}

func (q ListQuery) from() (seconds int64, limited bool) {
	return q.CreatedFrom.Unix(), !q.CreatedFrom.IsZero()
}

// to rounds up, so that the second in which the limit lies is read.
func (q ListQuery) to() (seconds int64, limited bool) {
	seconds = q.CreatedTo.Unix()
	if q.CreatedTo.Nanosecond() > 0 {
		seconds++
	}
	return seconds, !q.CreatedTo.IsZero()
}

// foreign names what shows that a PaymentIntent does not belong into the list.
func (q ListQuery) foreign(pi PaymentIntent) string {
	created := pi.Created.Unix()
	if from, limited := q.from(); limited && created < from {
		return "creation"
	}
	if to, limited := q.to(); limited && created >= to {
		return "creation"
	}
	if q.Customer != "" && pi.Customer != q.Customer {
		return "customer"
	}
	return ""
}

// Search returns the PaymentIntents that Stripe's search finds for up to
// MaxSearchKeys billing keys. It lags behind by a minute to an hour and is
// missing in India: what it shows exists, what it does not show may exist too.
// Only exact matches are returned; Stripe itself ignores case.
func (f *Finder) Search(ctx context.Context, stripeAccount string, keys []string) ([]PaymentIntent, error) {
	const doing = "search PaymentIntents"
	query, err := searchQuery(keys)
	if err != nil {
		return nil, &Error{Doing: doing, Kind: KindRefused, Err: err}
	}
	wanted := make(map[string]bool, len(keys))
	for _, key := range keys {
		wanted[key] = true
	}
	var found []PaymentIntent
	pages := make(map[string]bool)
	for token := ""; ; {
		text := "limit=" + strconv.Itoa(pageSize) + "&query=" + url.QueryEscape(query)
		if token != "" {
			text += "&page=" + url.QueryEscape(token)
		}
		list, meta, err := read[listJSON](ctx, f.client, f.client.searches, get{doing, stripeAccount, intentsPath + "/search", text})
		if err != nil {
			return nil, err
		}
		page, err := f.intents(doing, &list, meta)
		if err != nil {
			return nil, err
		}
		for _, pi := range page {
			if wanted[pi.BillingKey] {
				found = append(found, pi)
			}
		}
		if !*list.HasMore {
			return found, nil
		}
		token = list.NextPage
		if token == "" || pages[token] || len(pages) >= maxSearchPages {
			return nil, &Error{Doing: doing, Kind: KindBadAnswer, RequestID: meta.RequestID, Message: "the search does not end"}
		}
		pages[token] = true
	}
}

// searchQuery joins the keys by OR, each quoted, so that no key can end its
// string and add a clause.
func searchQuery(keys []string) (string, error) {
	if len(keys) == 0 || len(keys) > MaxSearchKeys {
		return "", fmt.Errorf("%d keys; 1 to %d can be searched at once", len(keys), MaxSearchKeys)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	clauses := make([]string, len(keys))
	for i, key := range keys {
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("key %.80q is empty or has control characters", key)
		}
		clauses[i] = `metadata["` + metaKey + `"]:"` + quote.Replace(key) + `"`
	}
	return strings.Join(clauses, " OR "), nil
}

// plainID accepts only what can stand in a path as it is.
func plainID(id string) bool {
	if !strings.HasPrefix(id, "pi_") || len(id) > 200 {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	})
}
