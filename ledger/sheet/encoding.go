package sheet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// Encodings that a file may be in, as a person types them.
const (
	EncodingUTF8    = "utf-8"
	EncodingUTF16   = "utf-16"
	EncodingWindows = "windows-1252"
)

// errBadUTF16 says that a file that began as UTF-16 is none.
var errBadUTF16 = errors.New("is broken UTF-16: save it as CSV UTF-8")

// isUTF16 reports whether bytes without a mark are UTF-16: every second byte of text
// that is mostly ASCII is zero there, and no byte is in UTF-8.
func isUTF16(start []byte) (big, found bool) {
	start = start[:min(len(start), 1024)]
	var zeros [2]int
	for i, b := range start {
		if b == 0 {
			zeros[i%2]++
		}
	}
	half := len(start) / 2
	switch {
	case half < 4:
		return false, false
	case zeros[1] > half*3/5 && zeros[0] == 0:
		return false, true
	case zeros[0] > half*3/5 && zeros[1] == 0:
		return true, true
	}
	return false, false
}

// utf16Reader turns UTF-16 into UTF-8.
type utf16Reader struct {
	r    io.Reader
	big  bool
	out  bytes.Buffer
	in   [16 << 10]byte
	kept int    // bytes at the start of in that are half of a unit
	high uint16 // the first half of a pair, 0 for none
	err  error
}

func (u *utf16Reader) Read(p []byte) (int, error) {
	for u.out.Len() == 0 && u.err == nil {
		n, err := u.r.Read(u.in[u.kept:])
		n += u.kept
		u.err = u.decode(u.in[:n-n%2])
		u.kept = n % 2
		if u.kept == 1 {
			u.in[0] = u.in[n-1]
		}
		switch {
		case u.err != nil:
		case errors.Is(err, io.EOF) && (u.kept == 1 || u.high != 0):
			u.err = errBadUTF16
		case err != nil:
			u.err = err
		}
	}
	if u.out.Len() > 0 {
		return u.out.Read(p)
	}
	return 0, u.err
}

func (u *utf16Reader) decode(units []byte) error {
	for i := 0; i < len(units); i += 2 {
		unit := uint16(units[i]) | uint16(units[i+1])<<8
		if u.big {
			unit = uint16(units[i])<<8 | uint16(units[i+1])
		}
		r := rune(unit)
		switch isHalf := utf16.IsSurrogate(r); {
		case u.high != 0:
			if r = utf16.DecodeRune(rune(u.high), r); r == utf8.RuneError {
				return errBadUTF16
			}
			u.high = 0
		case isHalf && unit >= 0xdc00:
			return errBadUTF16
		case isHalf:
			u.high = unit
			continue
		}
		u.out.WriteRune(r)
	}
	return nil
}

// windows1252 are the characters of the bytes 0x80 to 0x9f; zero means none.
var windows1252 = [32]rune{
	'€', 0, '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', 0, 'Ž', 0,
	0, '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', 0, 'ž', 'Ÿ',
}

// windowsReader turns Windows-1252 into UTF-8. Bytes without a meaning stay what they
// are, which is no UTF-8, so that they are refused where they stand.
type windowsReader struct {
	r   io.Reader
	out bytes.Buffer
	in  [16 << 10]byte
}

func (w *windowsReader) Read(p []byte) (int, error) {
	for w.out.Len() == 0 {
		n, err := w.r.Read(w.in[:])
		for _, b := range w.in[:n] {
			switch {
			case b >= 0x80 && b < 0xa0 && windows1252[b-0x80] == 0:
				w.out.WriteByte(b)
			case b >= 0x80 && b < 0xa0:
				w.out.WriteRune(windows1252[b-0x80])
			default:
				w.out.WriteRune(rune(b))
			}
		}
		if err != nil && w.out.Len() == 0 {
			return 0, err
		}
	}
	return w.out.Read(p)
}

// decoded returns the file as UTF-8 without a mark at its beginning, and the name of
// what it was. start is what the reader begins with.
func decoded(start []byte, r io.Reader, want string) (io.Reader, string, error) {
	mark := func(prefix string) bool { return bytes.HasPrefix(start, []byte(prefix)) }
	switch {
	case mark("PK\x03\x04"):
		return nil, "", errors.New("is a workbook or an archive, no CSV file: save the sheet as CSV UTF-8")
	case mark("\xd0\xcf\x11\xe0"):
		return nil, "", errors.New("is an old workbook (.xls), no CSV file: save the sheet as CSV UTF-8")
	case mark("\x1f\x8b"), mark("BZh"), mark("\x28\xb5\x2f\xfd"):
		return nil, "", errors.New("is compressed: unpack it first")
	case mark("%PDF"):
		return nil, "", errors.New("is a PDF, no CSV file: export the table as CSV UTF-8")
	case mark("\xff\xfe\x00\x00"), mark("\x00\x00\xfe\xff"):
		return nil, "", errors.New("is UTF-32: save it as CSV UTF-8")
	case mark("<!DOCTYPE"), mark("<html"), mark("<?xml"):
		return nil, "", errors.New("is a web page, no CSV file: was the download a log-in page? Export it again as CSV")
	}
	noMark := func(n int) io.Reader { return &skipped{r: r, left: n} }
	bigEndian, bare := isUTF16(start)
	switch {
	case want == EncodingWindows && (mark("\xef\xbb\xbf") || mark("\xff\xfe") || mark("\xfe\xff")):
		return nil, "", fmt.Errorf("begins with the mark of Unicode, so it is not %s: leave --encoding out", want)
	case want == EncodingWindows:
		return &windowsReader{r: r}, EncodingWindows, nil
	case mark("\xef\xbb\xbf"):
		return noMark(3), EncodingUTF8, nil
	case mark("\xff\xfe"):
		return &utf16Reader{r: noMark(2)}, EncodingUTF16, nil
	case mark("\xfe\xff"):
		return &utf16Reader{r: noMark(2), big: true}, EncodingUTF16, nil
	case bare || want == EncodingUTF16:
		return &utf16Reader{r: r, big: bigEndian}, EncodingUTF16, nil
	}
	return r, EncodingUTF8, nil
}

// skipped leaves out the first bytes of a reader.
type skipped struct {
	r    io.Reader
	left int
}

func (s *skipped) Read(p []byte) (int, error) {
	if s.left > 0 {
		if _, err := io.CopyN(io.Discard, s.r, int64(s.left)); err != nil {
			return 0, err
		}
		s.left = 0
	}
	return s.r.Read(p)
}

// lineReader turns a CR that ends a line alone into LF: encoding/csv would take a
// file of the old Mac kind for a header. A CR in quotes, and one before LF, stays.
type lineReader struct {
	r        io.Reader
	inQuotes bool
	pending  bool // a CR was the last byte, and is not given out yet
	lone     bool // a CR ended a line alone
	err      error
	in       [16 << 10]byte
	out      []byte
	buf      [16<<10 + 1]byte
}

func (l *lineReader) Read(p []byte) (int, error) {
	for len(l.out) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		n, err := l.r.Read(l.in[:])
		l.err = err
		l.out = l.convert(l.in[:n], err != nil)
	}
	n := copy(p, l.out)
	l.out = l.out[n:]
	return n, nil
}

// convert gives the bytes out. Most blocks have no CR and no quote that spans blocks,
// and are copied as they are.
func (l *lineReader) convert(in []byte, last bool) []byte {
	if !l.pending && bytes.IndexByte(in, '\r') < 0 {
		if bytes.Count(in, []byte{'"'})%2 == 1 {
			l.inQuotes = !l.inQuotes
		}
		return in
	}
	out := l.buf[:0]
	for _, b := range in {
		if l.pending {
			l.pending = false
			if b == '\n' {
				out = append(out, '\r')
			} else {
				out = append(out, '\n')
				l.lone = true
			}
		}
		switch {
		case b == '"':
			l.inQuotes = !l.inQuotes
			out = append(out, b)
		case b == '\r' && !l.inQuotes:
			l.pending = true
		default:
			out = append(out, b)
		}
	}
	if last && l.pending {
		l.pending = false
		l.lone = true
		out = append(out, '\n')
	}
	return out
}

var errRowTooLong = errors.New("row too long")

// boundedReader refuses to read on while one row lasts for too long: a quote that never
// ends would take the rest of the file into memory.
type boundedReader struct {
	r      io.Reader
	rowEnd int64 // where the last row ended
	read   int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.read-b.rowEnd > maxRowBytes {
		return 0, errRowTooLong
	}
	n, err := b.r.Read(p)
	b.read += int64(n)
	return n, err
}
