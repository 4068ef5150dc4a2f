package recorder

import (
	"container/list"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/wire"
)

// sessions are those that requests may go on from. Beyond a limit those that were idle for longest are forgotten: a session
// that comes back then is known by its headers, but its prompt is cut into blocks from the start.
//
// A request that names no session goes on from one that was not named either, and whose conversation it begins with: the
// longest such beginning decides, and one that holds the answer too is longer than one without. (Clients may change an answer
// before they send it back.) The same conversation once more is a session of its own, a second sample, unless the first one
// failed: then it is sent again. Of conversations only hashes are remembered.
type sessions struct {
	limit int
	byID  map[string]*list.Element // of *session
	byKey map[chainKey]*list.Element
	order *list.List // the most recent first
}

// chainKey stands for a conversation up to one of its items.
type chainKey = xxh3.Uint128

// session is what is remembered of a session.
type session struct {
	id string
	// keys stand for its latest conversation, without and with the answer. failed tells that there was none.
	keys   []chainKey
	failed bool
	// latest is closed when the blocks of its latest turn are cut: each turn waits for the one before.
	latest chan struct{}

	mu sync.Mutex // of what follows
	// prompts cuts its prompts into blocks where there is no tokenizer: one for each model, of which a session has few.
	prompts map[*hash.Estimator]*hash.Prompt
	// response is its latest, where it is one of OpenAI's, which a later request may name in the place of what it holds.
	response response
}

// response is what the server keeps of a prompt and its answer: the blocks, before a key is applied, and how many tokens are in
// them.
type response struct {
	key    chainKey
	blocks []uint64
	tokens int
}

func newSessions(limit int) *sessions {
	return &sessions{limit: limit, byID: map[string]*list.Element{}, byKey: map[chainKey]*list.Element{}, order: list.New()}
}

// named returns the session that headers name.
func (s *sessions) named(id wire.Session) *session {
	if at := s.byID[id.ID]; at != nil {
		s.order.MoveToFront(at)
		return at.Value.(*session)
	}
	n := s.add(id.ID)
	if parent := s.byID[id.Parent]; parent != nil {
		n.prompts = parent.Value.(*session).clonePrompts() // a child may begin with its parent's context
	}
	return n
}

// inferred returns the session that a conversation goes on from, or a new one with the given id, and remembers how it stands
// after the answer.
func (s *sessions) inferred(id string, c *wire.Conversation, a *answer, failed bool) *session {
	chain := chainOf(c.Items)
	at := s.find(c, chain)
	if at == nil {
		s.add(id)
		at = s.order.Front()
	}
	s.order.MoveToFront(at)
	known := at.Value.(*session)
	s.unlink(at)
	known.failed = failed
	if len(chain) > 0 {
		end := chain[len(chain)-1]
		known.keys = append(known.keys, end)
		if !failed {
			known.keys = append(known.keys, link(end, a.item()))
		}
	}
	if a.id != "" && !failed {
		known.keys = append(known.keys, responseKey(a.id))
	}
	for _, k := range known.keys {
		s.byKey[k] = at
	}
	return known
}

// find looks for the longest beginning.
func (s *sessions) find(c *wire.Conversation, chain []chainKey) *list.Element {
	if c.Previous != "" {
		if at := s.byKey[responseKey(c.Previous)]; at != nil {
			return at
		}
	}
	for i := len(chain) - 1; i >= 0; i-- {
		if at := s.byKey[chain[i]]; at != nil && (i < len(chain)-1 || at.Value.(*session).failed) {
			return at
		}
	}
	return nil
}

// add remembers a new session, and forgets the one that was idle for longest when there are too many.
func (s *sessions) add(id string) *session {
	n := &session{id: id, latest: make(chan struct{})}
	close(n.latest)
	s.byID[id] = s.order.PushFront(n)
	if s.order.Len() > s.limit {
		oldest := s.order.Back()
		s.unlink(oldest)
		delete(s.byID, oldest.Value.(*session).id)
		s.order.Remove(oldest)
	}
	return n
}

// unlink forgets the conversation of a session.
func (s *sessions) unlink(at *list.Element) {
	known := at.Value.(*session)
	for _, k := range known.keys {
		if s.byKey[k] == at { // another session may have come to the same since
			delete(s.byKey, k)
		}
	}
	known.keys = known.keys[:0]
}

// chainOf returns the keys of a conversation up to each of its items.
func chainOf(items []wire.Item) []chainKey {
	chain := make([]chainKey, len(items))
	var key chainKey
	for i := range items {
		key = link(key, &items[i])
		chain[i] = key
	}
	return chain
}

// link is the key of a conversation that goes on with an item. Of calls only the ids count: clients write arguments anew.
func link(key chainKey, item *wire.Item) chainKey {
	var h xxh3.Hasher
	before := key.Bytes()
	_, _ = h.Write(before[:])
	write := func(text string) {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		_, _ = h.WriteString(text)
	}
	write(item.Role)
	write(strings.TrimSpace(item.Text))
	for i := range item.Calls {
		write(item.Calls[i].ID)
	}
	return h.Sum128()
}

// responseKey stands for the conversation that ends with a response of OpenAI.
func responseKey(id string) chainKey { return xxh3.HashString128("response " + id) }

// place is the place of an exchange in its session: after closes when the blocks of the turn before are cut, cut is closed when
// its own are.
type place struct {
	*session
	after <-chan struct{}
	cut   chan struct{}
}

// next is the place of the next turn.
func (s *session) next() *place {
	p := &place{s, s.latest, make(chan struct{})}
	s.latest = p.cut
	return p
}

// prompt is the session's prompt in blocks of an estimator. The session must be locked.
func (s *session) prompt(e *hash.Estimator) *hash.Prompt {
	p := s.prompts[e]
	if p == nil {
		p = e.Prompt()
		if s.prompts == nil {
			s.prompts = map[*hash.Estimator]*hash.Prompt{}
		}
		s.prompts[e] = p
	}
	return p
}

// end remembers a response and its blocks: with its answer, where those are known.
func (s *session) end(id string, found identified, input, output int) {
	kept := response{responseKey(id), slices.Clone(found.prompt), input}
	if found.answered != nil {
		kept = response{responseKey(id), slices.Clone(found.answered), input + output}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.response = kept
}

func (s *session) clonePrompts() map[*hash.Estimator]*hash.Prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	clones := make(map[*hash.Estimator]*hash.Prompt, len(s.prompts))
	for e, p := range s.prompts {
		clones[e] = p.Clone()
	}
	return clones
}
