package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A secret is made once, for its owner alone, and read again after that. What is no secret is refused, and not shown.
func TestSecretFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	made, err := readSecret(name)
	if err != nil {
		t.Fatal(err)
	}
	again, err := readSecret(name)
	if err != nil || again != made {
		t.Errorf("read back %x, %v, want %x", again, err, made)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 600", info, err)
	}
	if other, err := readSecret(""); err != nil || other == made {
		t.Errorf("without a file: %x, %v; want another one", other, err)
	}
	for _, bad := range []string{"", "no key", strings.Repeat("x", 64), strings.Repeat("07", 33)} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSecret(name); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}
