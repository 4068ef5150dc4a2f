package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// secretUsage describes --key-file.
const secretUsage = "take the key from `FILE`, or keep a new one there (default: a new one that is kept nowhere)"

// secret is 32 bytes that block hashes and pseudonyms are keyed with.
type secret = [32]byte

// readSecret reads the secret of a file of hexadecimal digits, and makes the file if it is not there. Without a name the
// secret is new. What the file holds never appears in errors.
func readSecret(name string) (secret, error) {
	var s secret
	if name != "" {
		text, err := os.ReadFile(name)
		switch {
		case err == nil:
			digits := strings.TrimSpace(string(text))
			if n, err := hex.Decode(s[:], []byte(digits[:min(len(digits), hex.EncodedLen(len(s)))])); err != nil || n != len(s) || len(digits) != hex.EncodedLen(n) {
				return s, usagef("--key-file %s: a key is %d hexadecimal digits", name, hex.EncodedLen(len(s)))
			}
			return s, nil
		case !errors.Is(err, fs.ErrNotExist):
			return s, usagef("--key-file: %w", err)
		}
	}
	_, _ = rand.Read(s[:]) // it never fails
	if name == "" {
		return s, nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return s, usagef("--key-file: %w", err)
	}
	_, err = fmt.Fprintln(file, hex.EncodeToString(s[:]))
	if err = errors.Join(err, file.Close()); err != nil {
		return s, fmt.Errorf("keeping the key in %s: %w", name, err)
	}
	return s, nil
}
