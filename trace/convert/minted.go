package convert

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

// maxMinted bounds the hashes that are made for one load: a row of a few bytes may claim a prompt of any length.
const maxMinted = 1 << 26

// A mint makes block hashes of which it is only known which are equal.
type mint struct{ made int }

// chain makes a chain n blocks long with hashes that follow from the chain before, a name and a number.
func (m *mint) chain(chain []uint64, n int32, name string, number int) ([]uint64, error) {
	chain = chain[:len(chain):len(chain)]
	if int32(len(chain)) >= n {
		return chain, nil
	}
	if m.made += int(n) - len(chain); m.made > maxMinted {
		return nil, fmt.Errorf("prompts of more than %d blocks in all: load less, or take larger blocks", maxMinted)
	}
	sum := fnv.New64a()
	sum.Write(binary.LittleEndian.AppendUint64([]byte(name), uint64(number)))
	next := sum.Sum64()
	if len(chain) > 0 {
		next = hash.Combine(chain[len(chain)-1], next)
	}
	for int32(len(chain)) < n {
		next = hash.Combine(next, uint64(len(chain)))
		chain = append(chain, next)
	}
	return chain, nil
}

// grow adds a call whose prompt begins with known blocks of size tokens and goes on with blocks of its own. It returns the
// blocks that are full when the call has answered, which later prompts may begin with.
func (s *session) grow(m *mint, t *trace.Turn, known []uint64, size int32) (chain []uint64, err error) {
	call := len(s.calls) + 1
	if chain, err = m.chain(known[:min(len(known), int(t.Input/size))], (t.Input+size-1)/size, s.ID, call); err != nil {
		return nil, err
	}
	s.add(t, chain)
	if chain, err = m.chain(chain[:t.Input/size], (t.Input+t.Output+size-1)/size, s.ID, -call); err != nil {
		return nil, err
	}
	if t.Output > 0 {
		t.OutputHashes = slices.Clone(chain[t.Input/size:])
	}
	return chain[:(t.Input+t.Output)/size], nil
}
