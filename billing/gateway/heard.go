package gateway

import (
	"errors"
	"sync"
)

// heardAnswers is how many answers are remembered: many times more than can be
// under way at once, so that a copy comes while its original is remembered.
const heardAnswers = 4096

var errHeardBefore = errors.New("the answer is a copy of an earlier one")

// heard remembers the ids of the last answers. Stripe gives each answer a new
// Request-Id, a replayed one too, so an id that comes twice is a copy: something
// on the way answered twice, or answers from memory. On a connection that stays
// open the copy stands where the next answer should, and all that follow are one
// behind: an empty list of one customer would be read as another's, and prove an
// absence that is none. The zero heard is ready.
type heard struct {
	mu   sync.Mutex
	ids  map[string]bool
	last [heardAnswers]string
	next int
}

// before notes an answer's id and reports whether it was heard before. An answer
// without an id is not Stripe's own, and never was.
func (h *heard) before(id string) bool {
	if id == "" {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids[id] {
		return true
	}
	if h.ids == nil {
		h.ids = make(map[string]bool, heardAnswers)
	}
	delete(h.ids, h.last[h.next])
	h.ids[id], h.last[h.next] = true, id
	h.next = (h.next + 1) % heardAnswers
	return false
}
