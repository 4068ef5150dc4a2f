package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxCommandBytes bounds a command line.
const maxCommandBytes = 64 << 10

// splitCommand splits a command line into words as a POSIX shell does: quotes, backslashes, line continuations and
// comments. It ends at the first operator (a pipe, a redirection, an ampersand or a semicolon) and expands nothing.
func splitCommand(line string) ([]string, error) {
	if len(line) > maxCommandBytes {
		return nil, fmt.Errorf("a command line of %d bytes, want at most %d", len(line), maxCommandBytes)
	}
	var words []string
	var word strings.Builder
	inWord := false
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '\\':
			i++
			switch {
			case i == len(line):
				return nil, errors.New("the command line ends in a backslash")
			case line[i] == '\n':
			case line[i] == '\r' && i+1 < len(line) && line[i+1] == '\n':
				i++
			default:
				word.WriteByte(line[i])
				inWord = true
			}
		case '\'':
			n := strings.IndexByte(line[i+1:], '\'')
			if n < 0 {
				return nil, errors.New("a single quote is not closed")
			}
			word.WriteString(line[i+1 : i+1+n])
			i += 1 + n
			inWord = true
		case '"':
			n := writeDoubleQuoted(&word, line[i+1:])
			if n < 0 {
				return nil, errors.New("a double quote is not closed")
			}
			i += 1 + n
			inWord = true
		case ' ', '\t', '\n', '\r':
			end()
		case '|', '&', ';', '<', '>':
			if f := word.String(); c == '>' && (f == "1" || f == "2") { // a file descriptor
				inWord = false
			}
			end()
			return words, nil
		case '#':
			if !inWord {
				n := strings.IndexByte(line[i:], '\n')
				if n < 0 {
					return words, nil
				}
				i += n
				continue
			}
			word.WriteByte(c)
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	end()
	return words, nil
}

// writeDoubleQuoted appends what stands up to the closing quote and returns where that is, or -1.
func writeDoubleQuoted(word *strings.Builder, s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i
		case c == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$`", s[i+1]) >= 0:
			i++
			word.WriteByte(s[i])
		case c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			i++
		default:
			word.WriteByte(c)
		}
	}
	return -1
}

// option is one flag of a server's command line, as it was given, and its values.
type option struct {
	given  string // "--tensor_parallel_size"
	name   string // "tensor-parallel-size"
	values []string
}

// parseOptions reads the arguments of a server with an argparse command line. Switches are the flags without a value.
// The words that belong to no flag come back apart.
func parseOptions(args []string, switches map[string]bool, short map[string]string) (options []option, bare []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !isFlag(arg) {
			bare = append(bare, arg)
			continue
		}
		given, value, hasValue := strings.Cut(arg, "=")
		name := strings.ReplaceAll(strings.TrimLeft(given, "-"), "_", "-")
		name, _, _ = strings.Cut(name, ".") // --compilation-config.level 3
		if long, ok := short[name]; ok {
			name = long
		}
		o := option{given: given, name: name}
		switch {
		case hasValue:
			o.values = []string{value}
		case !switches[name]:
			for i+1 < len(args) && !isFlag(args[i+1]) {
				i++
				o.values = append(o.values, args[i])
			}
		}
		options = append(options, o)
	}
	return options, bare
}

var flagPattern = regexp.MustCompile(`^--?[A-Za-z]`)

// isFlag tells a flag from a value, which may be a negative number.
func isFlag(word string) bool { return flagPattern.MatchString(word) }
