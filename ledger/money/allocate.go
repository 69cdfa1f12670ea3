package money

import (
	"math/big"
	"slices"

	"github.com/shopspring/decimal"
)

// Allocate splits total, in any whole unit, in proportion to the weights, so
// that the parts add up to total exactly: each part is rounded down, and the
// units that are left go to the largest remainders, to the earlier line where
// two are equal. So 81 lines of 0.0449 show the 3.64 that is charged.
//
// Weights may be negative (an invoice has credits); where they add up to zero,
// total is split evenly. There is one part for each weight. The weights must
// come from Parse or from arithmetic on what Parse returned: their exponents
// are brought to one.
func Allocate(total int64, weights []decimal.Decimal) []int64 {
	if len(weights) == 0 {
		return nil
	}
	scaled, sum := sameExponent(weights)
	parts := make([]int64, len(weights))
	remainders := make([]*big.Int, len(weights))
	left := total
	for i, weight := range scaled {
		product := new(big.Int).Mul(big.NewInt(total), weight)
		// sum is positive, so that DivMod rounds down.
		part, remainder := new(big.Int).DivMod(product, sum, new(big.Int))
		parts[i], remainders[i] = part.Int64(), remainder
		left -= parts[i]
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return remainders[b].Cmp(remainders[a]) })
	for _, i := range order[:left] {
		parts[i]++
	}
	return parts
}

// sameExponent returns the weights as whole numbers of one unit, and their sum,
// which is made positive: turning every sign changes no proportion.
func sameExponent(weights []decimal.Decimal) (scaled []*big.Int, sum *big.Int) {
	lowest := weights[0].Exponent()
	for _, w := range weights {
		lowest = min(lowest, w.Exponent())
	}
	sum = new(big.Int)
	for _, w := range weights {
		whole := w.Shift(-lowest).BigInt()
		scaled = append(scaled, whole)
		sum.Add(sum, whole)
	}
	switch sum.Sign() {
	case 0:
		for i := range scaled {
			scaled[i] = big.NewInt(1)
		}
		sum.SetInt64(int64(len(scaled)))
	case -1:
		for _, w := range scaled {
			w.Neg(w)
		}
		sum.Neg(sum)
	}
	return scaled, sum
}
