package hash

// token is the weight of one token.
const token = 1 << 12

// A class is a kind of byte.
type class uint8

const (
	lower class = iota
	upper
	digit
	space
	newline
	mark         // other ASCII
	continuation // of a rune in UTF-8
	lead2        // of two bytes: Latin, Greek, Cyrillic, Hebrew, Arabic
	lead3        // of three: Indic scripts, Chinese, Japanese, Korean
	lead4        // of four: emoji, rare ideographs
	classes
)

func classOf(b byte) class {
	switch {
	case 'a' <= b && b <= 'z':
		return lower
	case 'A' <= b && b <= 'Z':
		return upper
	case '0' <= b && b <= '9':
		return digit
	case b == ' ' || b == '\t':
		return space
	case b == '\n' || b == '\r':
		return newline
	case b < 0x80:
		return mark
	case b < 0xc0:
		return continuation
	case b < 0xe0:
		return lead2
	case b < 0xf0:
		return lead3
	default:
		return lead4
	}
}

// first and further are the weights of a byte whose predecessor has another class, and of one whose has the same.
var (
	first   = [classes]int64{lower: 2600, upper: 2600, digit: 2600, space: 600, newline: 2400, mark: 2600, continuation: 600, lead2: 900, lead3: 1500, lead4: 4096}
	further = [classes]int64{lower: 330, upper: 1500, digit: 1366, space: 100, newline: 500, mark: 1200, continuation: 600, lead2: 900, lead3: 1500, lead4: 4096}
)

// rows holds, for each byte, the weights of all that may follow it. What begins a text is as after a newline.
var rows = func() *[256]*[256]int64 {
	var byClass [classes]*[256]int64
	for k := range classes {
		byClass[k] = new([256]int64)
		for b := range 256 {
			if c := classOf(byte(b)); c == k {
				byClass[k][b] = further[c]
			} else {
				byClass[k][b] = first[c]
			}
		}
	}
	all := new([256]*[256]int64)
	for b := range 256 {
		all[b] = byClass[classOf(byte(b))]
	}
	return all
}()

// rowAt returns the weights of what stands at an offset of a text.
func rowAt(text string, offset int) *[256]int64 {
	if offset == 0 {
		return rows['\n']
	}
	return rows[text[offset-1]]
}

// weigh returns the weight of a text.
func weigh(text string) int64 {
	sum, row := int64(0), rowAt(text, 0)
	for i := range len(text) {
		sum += row[text[i]]
		row = rows[text[i]]
	}
	return sum
}
