package hash_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/hash/tokenizer"
)

// readPrompts returns the prompts of a session in order of time, from ../shared/traces/lmcache-agent.
func readPrompts(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Timestamp int64
		Input     string
	}
	var rows []row
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	var prompts []string
	for _, r := range rows {
		prompts = append(prompts, r.Input)
	}
	return prompts
}

// seen are hashes in the order of their prompts, with an infinite cache.
type seen map[uint64]bool

// reuse returns how many of a prompt's full blocks have been seen from its start on, and adds all of them.
func (s seen) reuse(sums []uint64, tokens, blockSize int) (n int) {
	full := sums[:tokens/blockSize]
	for n < len(full) && s[full[n]] {
		n++
	}
	for _, h := range full {
		s[h] = true
	}
	return n
}

// TestEstimateOnRealPrompts compares the reuse that estimated hashes show, where lengths are known, with that of the
// prompts' own tokens by the tokenizer.json that TOKENIZER names: within sessions, and across all of them.
func TestEstimateOnRealPrompts(t *testing.T) {
	path := os.Getenv("TOKENIZER")
	if path == "" {
		t.Skip("TOKENIZER names no tokenizer.json")
	}
	const blockSize = 16
	folders, err := filepath.Glob("../../../shared/traces/lmcache-agent/*")
	if err != nil || len(folders) == 0 {
		t.Skip("no ../shared/traces/lmcache-agent")
	}
	tokens, err := tokenizer.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		files, _ := filepath.Glob(filepath.Join(folder, "*.jsonl.gz"))
		if len(files) == 0 {
			continue
		}
		estimator := hash.NewEstimator(blockSize)
		across := [2]seen{{}, {}}
		var total, prompts int
		var within, all [2]int // blocks reused: of the tokens, of the estimate
		var off float64
		for _, file := range files {
			session := [2]seen{{}, {}}
			prompt := estimator.Prompt()
			for _, text := range readPrompts(t, file) {
				ids := tokens.Encode(text)
				var reused [2]int
				for i, sums := range [2][]uint64{hash.Blocks(ids, blockSize), prompt.Blocks(text, len(ids))} {
					within[i] += session[i].reuse(sums, len(ids), blockSize)
					reused[i] = across[i].reuse(sums, len(ids), blockSize)
					all[i] += reused[i]
				}
				total += len(ids) / blockSize
				off += math.Abs(float64(reused[1]-reused[0])) * blockSize
				prompts++
			}
		}
		share := func(blocks int) float64 { return 100 * float64(blocks) / float64(total) }
		t.Logf("%-9s %4d prompts of %5d tokens: reused in sessions %.1f%%, by the estimate %.1f%%; across them %.1f%%, %.1f%%; off by %.0f tokens a prompt", filepath.Base(folder), prompts,
			total*blockSize/max(1, prompts), share(within[0]), share(within[1]), share(all[0]), share(all[1]), off/float64(prompts))
		for _, pair := range [][2]int{within, all} {
			if math.Abs(share(pair[1])-share(pair[0])) > 3 {
				t.Errorf("%s: the estimate is more than 3 points off", folder)
			}
		}
	}
}
