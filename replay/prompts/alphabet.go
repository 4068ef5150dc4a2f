package prompts

import (
	"fmt"
	"math/bits"
	"strconv"
)

// The range of token ids that prompts are made of unless another is asked for: no special tokens, in the vocabulary of
// every model with 32,000 tokens or more, and all of five digits.
const (
	DefaultLowID  = 10000
	DefaultHighID = 30000
)

// Alphabet is the symbols that prompts are made of. All are equally long, so that the length of a prompt in bytes
// follows from that in symbols and a prompt can be sent while it is made.
type Alphabet struct {
	width   int
	count   uint64
	symbols []byte
	// ids tells that symbols are elements of a JSON array of token ids, the first of which is low; else they are words of a
	// JSON string.
	ids bool
	low uint32
}

// TokenIDs returns the alphabet of the token ids in [low, high).
func TokenIDs(low, high int) (*Alphabet, error) {
	if low < 0 || high-low < 256 || high > 1<<24 {
		return nil, fmt.Errorf("token ids %d to %d: want at least 256 of them, between 0 and %d", low, high-1, 1<<24-1)
	}
	digits := len(strconv.Itoa(high - 1))
	a := &Alphabet{width: digits + 1, count: uint64(high - low), ids: true, low: uint32(low)}
	for id := low; id < high; id++ {
		a.symbols = fmt.Appendf(a.symbols, ",%*d", digits, id)
	}
	return a, nil
}

// Words returns the alphabet of words, each with a space before it. They must be equally long and of plain ASCII.
func Words(words []string) (*Alphabet, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("no words to make prompts of")
	}
	a := &Alphabet{width: len(words[0]) + 1, count: uint64(len(words))}
	for _, word := range words {
		if len(word) != len(words[0]) {
			return nil, fmt.Errorf("words %q and %q differ in length", words[0], word)
		}
		for i := range len(word) {
			if word[i] < 'a' || word[i] > 'z' {
				return nil, fmt.Errorf("word %q: want lower-case ASCII letters", word)
			}
		}
		a.symbols = append(append(a.symbols, ' '), word...)
	}
	return a, nil
}

// pick is the number of the symbol that a 64-bit draw picks.
func (a *Alphabet) pick(draw uint64) uint64 {
	pick, _ := bits.Mul64(draw, a.count) // draw/2^64 of the way
	return pick
}

// append adds the symbol that a draw picks.
func (a *Alphabet) append(buf []byte, draw uint64) []byte {
	at := int(a.pick(draw)) * a.width
	return append(buf, a.symbols[at:at+a.width]...)
}

// List is the words that text prompts are made of: common English words of four letters, because those are single tokens in most
// vocabularies. What of it are single tokens in a server's vocabulary is found by calibration.
func List() []string {
	const width = 4
	words := make([]string, 0, len(wordList)/(width+1))
	for i := 0; i+width <= len(wordList); i += width + 1 {
		words = append(words, wordList[i:i+width])
	}
	return words
}

const wordList = "able also area away baby back ball band bank base bear beat been best bill bird blue boat body book " +
	"born both call came camp card care case cash cell city club cold come cook cool core cost dark data date dead deal " +
	"dear deep desk does done door down draw drop each east easy edge else even ever face fact fail fair fall farm fast " +
	"fear feel feet fell file fill film find fine fire firm fish five flat food foot form four free from full fund game " +
	"gave girl give goal goes gold gone good grew grow hair half hall hand hang hard have head hear heat held help here " +
	"hero high hill hold hole home hope host hour huge idea into iron item join jump just keep kept kick kind king knew " +
	"know lack lady lake land last late lead left less life lift like line link list live load long look lord lose loss " +
	"lost love made mail main make male many mark mass mean meet menu mind mine miss mode moon more most move much must " +
	"name near neck need news next nice nine none note okay once only open over pace pack page paid pain pair park part " +
	"pass past path peak pick plan play plus poor post pull pure push race rain rate read real rely rest rice rich ride " +
	"ring rise risk road rock role roll roof room root rule safe said sale same sand save seat seem seen self sell send " +
	"sent ship shop show shut sick side sign site size skin slow snow soft soil sold some song soon sort soul spot star " +
	"stay step stop such suit sure take talk tall task team tell term test text than that them then they thin this thus " +
	"time tiny told tone took tour town tree trip true turn twin type unit upon used user vary very view vote wait walk " +
	"wall want warm wash wave weak wear week well went were west what when whom wide wife wild will wind wine wing wire " +
	"wise wish with wood word work yard yeah year your zero zone"
