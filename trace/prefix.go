package trace

// NodeID numbers a node of a workload's prefix tree. 0 is the root, which holds no tokens.
type NodeID int32

// Key names the tokens of a prefix-tree node in one run. Copy is 0 for tokens that all runs of a program share and
// the number of the run for tokens that are private to it, so that a repeated program never hits the cache of its
// predecessor.
type Key uint64

// MakeKey returns the key of a node in copy number copy of its program.
func MakeKey(n NodeID, copy uint32) Key { return Key(copy)<<32 | Key(uint32(n)) }

// Node returns the tree node of the key.
func (k Key) Node() NodeID { return NodeID(uint32(k)) }

// Copy returns the program copy of the key.
func (k Key) Copy() uint32 { return uint32(k >> 32) }

// Span is the part of a request's tokens that lies in one tree node, as KV blocks [From, To) counted from the start
// of the prompt. A path is a list of spans without holes: span i+1 begins where span i ends. Two paths through a node
// have the same From in it, and agree up to the lesser To. A block belongs to the node in which it becomes full.
type Span struct {
	Key      Key
	From, To int32
}
