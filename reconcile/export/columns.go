package export

// The columns of the files are a public interface: they keep their names and places,
// new ones come at the end.
var (
	// Charges has the columns of the view report_charges.
	Charges = Table{"charges", []Column{
		{Name: "job", Kind: KindID}, {Name: "period", Kind: KindID}, {Name: "account_id", Kind: KindID}, {Name: "name"},
		{Name: "billing_key", Kind: KindID}, {Name: "try", Kind: KindInteger}, {Name: "idempotency_key", Kind: KindID},
		{Name: "state"}, {Name: "reason"}, {Name: "amount", Kind: KindAmount, Currency: "currency"}, {Name: "currency"},
		{Name: "amount_minor", Kind: KindInteger}, {Name: "payment_intent", Kind: KindID}, {Name: "stripe_customer", Kind: KindID},
		{Name: "stripe_account", Kind: KindID}, {Name: "decline_code"},
		{Name: "amount_refunded", Kind: KindAmount, Currency: "currency"}, {Name: "disputed", Kind: KindBool},
		{Name: "sends", Kind: KindInteger}, {Name: "created_at", Kind: KindTime}, {Name: "window_opened_at", Kind: KindTime},
		{Name: "settled_at", Kind: KindTime}, {Name: "run_id", Kind: KindID}, {Name: "request_id"},
		// What an audit saw on Stripe's balance, in its currency.
		{Name: "fee", Kind: KindAmount, Currency: "balance_currency"}, {Name: "net", Kind: KindAmount, Currency: "balance_currency"},
		{Name: "payout"}, {Name: "available_on", Kind: KindTime}, {Name: "refunds", Kind: KindInteger}, {Name: "balance_currency"},
	}}

	// Events has every change of a charge after it was recorded.
	Events = Table{"events", []Column{
		{Name: "id", Kind: KindInteger}, {Name: "at", Kind: KindTime}, {Name: "job", Kind: KindID}, {Name: "period", Kind: KindID},
		{Name: "account_id", Kind: KindID}, {Name: "try", Kind: KindInteger}, {Name: "from_state"}, {Name: "to_state"}, {Name: "reason"},
		{Name: "cause"}, {Name: "run_id", Kind: KindID}, {Name: "person"}, {Name: "payment_intent", Kind: KindID}, {Name: "request_id"},
		{Name: "detail"},
	}}
)
