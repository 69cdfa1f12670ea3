package sheet

// plainAmount reports whether a text is digits, with at most one point that two digits
// follow, which every file that was written by a program has: nothing need be taken
// apart. With comma as the mark of the file it is none.
func plainAmount(text string) (mark byte, ok bool) {
	n := len(text)
	if n == 0 || n > 15 {
		return 0, false
	}
	if text[0] == '-' {
		text, n = text[1:], n-1
	}
	if n > 3 && text[n-3] == '.' {
		mark = '.'
		if text[n-1] < '0' || text[n-1] > '9' || text[n-2] < '0' || text[n-2] > '9' {
			return 0, false
		}
		n -= 3
	}
	for i := range n {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
	}
	return mark, n > 0
}
