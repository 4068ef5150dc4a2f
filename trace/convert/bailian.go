package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// bailianBlock is the tokens per hash of Qwen-Bailian traces.
const bailianBlock = 16

// bailianRow is one row: a whole prompt, which may go on from that of a parent.
type bailianRow struct {
	chat, parent string
	kind         string
	timestamp    float64 // seconds
	in, out      int64
	hashes       []uint64

	turn     *trace.Turn
	session  *session
	followed bool // a later row has gone on in the session
}

func isBailian(l *look) bool { return l.has("chat_id", "parent_chat_id") }

func parseBailian(text []byte) (*bailianRow, error) {
	r := &bailianRow{timestamp: math.NaN(), in: -1, out: -1}
	s := &scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "chat_id":
			r.chat = s.name()
		case "parent_chat_id":
			r.parent = s.name()
		case "timestamp":
			r.timestamp = s.float()
		case "input_length":
			r.in = s.integer()
		case "output_length":
			r.out = s.integer()
		case "type":
			r.kind = s.str()
		case "hash_ids":
			list := s.flat()
			if s.err != nil || list == nil {
				continue
			}
			var err error
			if r.hashes, err = trace.AppendHashes(make([]uint64, 0, bytes.Count(list, []byte{','})+1), list); err != nil {
				s.fail("hash_ids: %w", err)
			}
		default:
			s.skip()
		}
	}
	return r, s.end()
}

// bailian reads the traces of Qwen on Alibaba Cloud's Bailian. Each row is a whole prompt in blocks of 16 tokens. The first
// row that names a parent goes on in the parent's session, others begin a session beside it. When a call ended is not
// told: a row follows its parent's end, and not sooner after its start than recorded. A parent that is not in the files
// came before them.
func (in input) bailian() (*trace.Capture, error) {
	var rows []*bailianRow
	byChat := map[string]*bailianRow{}
	read, err := readRows(in, parseBailian, func(at place, r *bailianRow) error {
		if r.chat == "" {
			return at.fail(errors.New("chat_id is missing"))
		}
		r.turn = at.turn()
		if first := byChat[r.chat]; first != nil {
			return at.fail(fmt.Errorf("chat_id %s was used before, at %s:%d", r.chat, first.turn.File, first.turn.Line))
		}
		byChat[r.chat] = r
		rows = append(rows, r)
		return r.finish(at, in.blockSize(bailianBlock))
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b *bailianRow) int {
		return cmp.Or(cmp.Compare(a.turn.Start, b.turn.Start), cmp.Compare(len(a.chat), len(b.chat)), cmp.Compare(a.chat, b.chat))
	})
	var sessions []*session
	for _, r := range rows {
		parent := byChat[r.parent]
		if parent != nil && parent.session == nil { // it starts later: not the row that this one goes on from
			parent = nil
		}
		if parent != nil && !parent.followed {
			parent.followed = true
			r.session = parent.session
		} else {
			r.session = &session{Session: trace.Session{ID: r.chat, Class: r.kind}}
			if parent != nil {
				r.session.Parent = parent.session.ID
			}
			sessions = append(sessions, r.session)
		}
		if parent != nil {
			r.turn.Explicit = true
			r.turn.Waits = followStart(parent.turn, r.turn)
		}
		r.session.add(r.turn, r.hashes)
		r.hashes = nil
	}
	c := &trace.Capture{Format: FormatBailian, Resolution: time.Millisecond, SharedClock: true}
	if c, err = in.join(c, in.blockSize(bailianBlock), sessions, &read); err != nil {
		return nil, err
	}
	c.Rebase()
	return c, nil
}

func (r *bailianRow) finish(at place, blockSize int) (err error) {
	t := r.turn
	t.ID = r.chat
	if t.Start, err = seconds("timestamp", r.timestamp); err != nil {
		return at.fail(err)
	}
	if t.Input, err = tokens("input_length", r.in, 1); err != nil {
		return at.fail(err)
	}
	if t.Output, err = tokens("output_length", r.out, 0); err != nil {
		return at.fail(err)
	}
	if len(r.hashes) > 0 {
		if err := trace.CheckHashCount(len(r.hashes), t.Input, int32(blockSize)); err != nil {
			return at.fail(err)
		}
	}
	t.Trigger = "user_message"
	return nil
}

// followStart returns what a call waits for that follows another of which only the start is told: its end, and the
// distance of the starts.
func followStart(before, t *trace.Turn) []trace.Wait {
	return []trace.Wait{{ID: before.ID}, {ID: before.ID, Delay: max(0, t.Start-before.Start), OnDispatch: true}}
}

// blockSize is the user's choice of tokens per block, or the usual one of a format.
func (in input) blockSize(usual int) int { return cmp.Or(in.opts.BlockSize, usual) }
