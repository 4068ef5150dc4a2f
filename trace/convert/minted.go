package convert

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/agentsim/agentsim/trace/hash"
)

// mint makes a chain n blocks long with hashes that follow from the chain before, a name and a number.
func mint(chain []uint64, n int32, name string, number int) []uint64 {
	chain = chain[:len(chain):len(chain)]
	if int32(len(chain)) >= n {
		return chain
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
	return chain
}
