package main

import "github.com/chargeonce/billing/ledger/sheet"

// The names of the columns are a public interface; so are the other titles.
var (
	accountTitles = []string{"account", "account number", "account no", "customer id", "customer number", "customer no", "client id", "client number", "client no"}
	totalTitles   = []string{"total", "total amount", "grand total", "invoice total", "invoice amount", "amount due", "balance due"}

	accountKind = sheet.Kind{
		Columns: []sheet.Column{
			{Name: "account_id", Required: true, Also: accountTitles},
			{Name: "stripe_customer", Required: true, Also: []string{"stripe customer id"}},
			{Name: "payment_method", Required: true, Also: []string{"payment method id", "stripe payment method"}},
			{Name: "currency", Required: true, Also: currencyTitles},
			{Name: "email", Also: []string{"e-mail", "email address", "customer email"}},
			{Name: "name", Also: []string{"account name", "customer name", "company"}},
			{Name: "status"}, {Name: "card_expires", Also: []string{"card expiry"}}, {Name: "stripe_account"},
		},
		Wrong: append([]sheet.Wrong{
			{What: "a file of invoices", Type: "billing import invoices --period P --file F", All: [][]string{{"account_id", "amount"}, {"account_id", "invoice_id"}, {"*InvoiceNumber"}, {"Invoice Number", "Total"}}},
			{What: "Stripe's export of customers", Type: "it does not know your account ids; want one row for each of your accounts, with account_id and stripe_customer",
				All: [][]string{{"id", "Description", "Email", "Card ID"}, {"id", "Email", "Delinquent"}, {"id", "Created (UTC)", "Email", "Default Source"}}},
		}, otherFiles...),
	}

	invoiceKind = sheet.Kind{
		Account: "account_id", Amount: "amount",
		Columns: []sheet.Column{
			{Name: "account_id", Required: true, Also: accountTitles},
			{Name: "amount", Required: true, Also: append([]string{"line total", "line amount", "item total"}, totalTitles...), Totals: totalTitles},
			{Name: "currency", Required: true, Also: currencyTitles},
			{Name: "description", Also: []string{"memo", "line description", "item description"}},
			{Name: "invoice_id", Also: []string{"invoice", "invoice number", "invoice no"}},
			{Name: "invoice_date", Also: []string{"date", "issue date", "date issued"}},
			{Name: "period", Also: []string{"billing period", "billing month", "month"}},
		},
		Wrong: append([]sheet.Wrong{
			{What: "a file of accounts", Type: "billing import accounts --file F", All: [][]string{{"account_id", "stripe_customer"}, {"account_id", "payment_method"}}},
			{What: "Stripe's export of customers", Type: "export the invoices of your own books",
				All: [][]string{{"id", "Description", "Email", "Card ID"}, {"id", "Email", "Delinquent"}, {"id", "Created (UTC)", "Email", "Default Source"}}},
		}, otherFiles...),
	}

	currencyTitles = []string{"currency code", "ccy", "iso currency"}
)

// otherFiles are what people have beside the file that they mean. What was paid, or
// paid out, is no debt: to import it would be to charge it a second time.
var otherFiles = []sheet.Wrong{
	{What: "Stripe's export of payouts", Type: "money that came to your bank is no invoice; export the invoices of your own books",
		All: [][]string{{"id", "Amount", "Arrival Date (UTC)"}, {"id", "Amount", "Arrival Date"}, {"Payout ID", "Amount"}, {"automatic_payout_id"}}},
	{What: "Stripe's export of payments", Type: "what was paid is no invoice; export the invoices of your own books",
		All: [][]string{{"id", "Amount", "Amount Refunded"}, {"PaymentIntent ID", "Amount"}, {"id", "Amount", "Captured"}, {"id", "Amount", "Seller Message"}}},
	{What: "Stripe's report of balance changes", Type: "export the invoices of your own books",
		All: [][]string{{"balance_transaction_id"}, {"reporting_category", "gross", "net"}, {"id", "Type", "Source", "Amount", "Fee", "Net"}}},
	{What: "this program's export of charges", Type: "what is in it is recorded already; import the file of invoices that it was made from",
		All: [][]string{{"billing_key", "idempotency_key"}, {"billing_key", "amount_minor"}}},
	{What: "GoCardless's export of payments", Type: "what was paid is no invoice; export the invoices of your own books",
		All: [][]string{{"amount", "charge_date", "links.mandate"}, {"amount", "customers.email"}, {"payments.id"}, {"amount", "amount_refunded", "customers.given_name"}}},
	{What: "PayPal's list of transactions", Type: "what was paid is no invoice; export the invoices of your own books",
		All: [][]string{{"Date", "Gross", "Fee", "Net"}, {"Transaction ID", "Gross", "Net"}}},
	{What: "a journal of Wave's, with both legs of each booking", Type: "export the invoices, one row each, with the account's id, amount and currency",
		All: [][]string{{"Transaction ID", "Amount (One column)"}, {"Transaction ID", "Debit Amount (Two Column Approach)"}, {"Transaction ID", "Account Group", "Transaction Date"}}},
	{What: "an AWS report of cost and usage", Type: "usage is metered, not imported as invoices; want one row for each account, with account_id, amount and currency",
		All: [][]string{{"lineItem/UsageAccountId"}, {"lineItem/UnblendedCost"}, {"identity/LineItemId"}}},
	{What: "Square's export of items", Type: "what was sold and paid is no invoice; export the invoices of your own books",
		All: [][]string{{"Gross Sales", "Net Sales", "Time Zone"}, {"Gross Sales", "Item", "Qty"}}},
	{What: "a file of usage", Type: "billing import usage --file F",
		All: [][]string{{"transaction_id", "external_subscription_id", "code"}, {"event_id", "quantity", "timestamp"}, {"transaction_id", "code", "properties"},
			{"account_id", "metric", "quantity"}}},
}
