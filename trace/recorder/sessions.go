package recorder

import (
	"container/list"
	"encoding/binary"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace/wire"
)

// sessions finds the session of requests that name none. A request whose conversation begins with all of an earlier one
// goes on from it; the longest such beginning decides, and one that holds the earlier answer too is longer than one without.
// (Clients may change an answer before they send it back.) The same conversation again is a request of its own, a second
// sample, unless the first one failed: then it is sent again.
//
// What is remembered of a conversation is hashes. When there are too many, those that were not gone on from for longest
// are forgotten.
type sessions struct {
	limit int
	byKey map[chainKey]*list.Element // of *session
	order *list.List                 // the most recent first
}

// chainKey stands for a conversation up to one of its items.
type chainKey = xxh3.Uint128

// session is the latest known turn of a session.
type session struct {
	id   string
	keys []chainKey // its entries in byKey
	// failed tells that the turn was not answered, so that the same conversation is a second try.
	failed bool
	length int // items of the conversation
}

func newSessions(limit int) *sessions {
	return &sessions{limit: limit, byKey: map[chainKey]*list.Element{}, order: list.New()}
}

// place returns the session that a conversation goes on from, or a new one with the given id, and remembers how it stands
// after the answer.
func (s *sessions) place(id string, c *wire.Conversation, a *answer, failed bool) string {
	chain := chainOf(c.Items)
	at := s.find(c, chain)
	if at != nil {
		id = at.Value.(*session).id
		s.forget(at)
	}
	now := &session{id: id, failed: failed, length: len(c.Items)}
	if len(chain) > 0 {
		end := chain[len(chain)-1]
		now.keys = append(now.keys, end)
		if !failed {
			now.keys = append(now.keys, link(end, &wire.Item{Role: "assistant", Text: string(a.content), Calls: a.made()}))
		}
	}
	if a.id != "" && !failed {
		now.keys = append(now.keys, responseKey(a.id))
	}
	s.remember(now)
	return id
}

// find looks for the longest beginning.
func (s *sessions) find(c *wire.Conversation, chain []chainKey) *list.Element {
	if c.Previous != "" {
		if at := s.byKey[responseKey(c.Previous)]; at != nil {
			return at
		}
	}
	for i := len(chain) - 1; i >= 0; i-- {
		at := s.byKey[chain[i]]
		if at == nil {
			continue
		}
		if known := at.Value.(*session); i < len(chain)-1 || known.failed {
			return at
		}
	}
	return nil
}

func (s *sessions) remember(now *session) {
	at := s.order.PushFront(now)
	for _, k := range now.keys {
		s.byKey[k] = at
	}
	for s.order.Len() > s.limit {
		s.forget(s.order.Back())
	}
}

func (s *sessions) forget(at *list.Element) {
	for _, k := range at.Value.(*session).keys {
		if s.byKey[k] == at { // another session may have come to the same
			delete(s.byKey, k)
		}
	}
	s.order.Remove(at)
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
	b := key.Bytes()
	_, _ = h.Write(b[:])
	for _, text := range append([]string{item.Role, strings.TrimSpace(item.Text)}, callIDs(item.Calls)...) {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		_, _ = h.WriteString(text)
	}
	return h.Sum128()
}

func callIDs(calls []wire.ToolCall) []string {
	var ids []string
	for i := range calls {
		ids = append(ids, calls[i].ID)
	}
	return ids
}

// responseKey stands for the conversation that ends with a response of OpenAI.
func responseKey(id string) chainKey { return xxh3.HashString128("response " + id) }
