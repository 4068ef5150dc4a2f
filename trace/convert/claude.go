package convert

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

func isClaude(l *look) bool {
	return l.has("sessionId") && l.hasAny("uuid", "message", "type") || l.has("leafUuid") || l.has("agentType") ||
		l.keys["type"] == "file-history-snapshot"
}

// claude reads Claude Code's transcripts (~/.claude/projects/FOLDER/SESSION.jsonl) of all layouts: subagents in the same
// file (up to 2.0), in files beside it, and in folders below.
//
// A call is the rows with one message id, wherever they stand: streaming writes a row a content block, and resumed and
// forked sessions copy rows. A call starts when the last message or tool result before it came, for that is all that a
// transcript tells, and ends with its last row.
func (in input) claude() (*trace.Capture, error) {
	t := &transcripts{logbook: newLogbook(FormatClaude), types: map[string]string{}, ended: map[string]time.Duration{}, byID: map[string]*claudeRow{},
		responses: map[string]*claudeResponse{}}
	err := trace.MapLines(in.ctx, in.segments, in.opts.Progress, parseClaude, func(p *claudePart) error {
		t.read.Add(&p.read)
		t.rows = append(t.rows, p.rows...)
		for agent, kind := range p.types {
			t.types[agent] = kind
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.dropCopies()
	t.linkRows()
	t.nameChains()
	t.gatherResponses()
	t.linkAgents()
	t.tell()
	return t.capture(in)
}

// transcripts is the rows of all files of a load, in the order of the files.
type transcripts struct {
	*logbook
	rows      []*claudeRow
	ended     map[string]time.Duration // when the last row of a session was written
	byID      map[string]*claudeRow
	responses map[string]*claudeResponse
	order     []*claudeResponse
	types     map[string]string // the type of an agent
}

// claudeResponse is what the model answered to one call.
type claudeResponse struct {
	rows    []*claudeRow
	from    *claudeResponse // the response that the prompt goes on from
	results []*claudeRow    // rows with tool results that come behind it
	prompt  *passage
	answer  *passage // behind the prompt
	begun   bool     // its prompt and answer are made
}

// dropCopies keeps one of the rows with the same uuid: resumed and forked sessions repeat what came before them. The
// session that ended first is the original.
func (t *transcripts) dropCopies() {
	for _, r := range t.rows {
		t.ended[r.session] = max(t.ended[r.session], r.at)
	}
	for _, r := range t.rows {
		if known := t.byID[r.uuid]; r.uuid != "" && (known == nil || t.original(r, known)) {
			t.byID[r.uuid] = r
		}
	}
	t.rows = slices.DeleteFunc(t.rows, func(r *claudeRow) bool {
		if r.uuid == "" || t.byID[r.uuid] == r {
			return false
		}
		t.read.Skip("copies of other rows")
		return true
	})
}

// original tells whether the first of two copies of a row is rather the original than the second.
func (t *transcripts) original(a, b *claudeRow) bool {
	if a.forked != b.forked {
		return b.forked
	}
	return cmp.Or(cmp.Compare(t.ended[a.session], t.ended[b.session]), strings.Compare(a.session, b.session)) < 0
}

// linkRows finds the row that each row goes on from: the one that it names, else the one before it in its file. Subagents
// and compacted conversations begin anew.
func (t *transcripts) linkRows() {
	type stream struct {
		file, session, agent string
		sidechain            bool
	}
	last := map[stream]*claudeRow{}
	for _, r := range t.rows {
		in := stream{r.file, r.session, r.agent, r.sidechain}
		before := last[in]
		last[in] = r
		named := t.byID[r.parentID]
		switch {
		case r.summary:
			continue
		case r.parentID != "" && named != nil:
			before = named
		case r.uuid != "" && (r.parentID == "" || r.sidechain && r.agent == ""): // of the last, any may be the one before
			continue
		}
		if before != nil && before != r && before.agent == r.agent && before.sidechain == r.sidechain {
			r.parent = before
		}
	}
	// A row that goes on from itself, over others, begins anew.
	for i, r := range t.rows {
		for at := r; at != nil && at.walk == 0; at = at.parent {
			at.walk = i + 1
			if at.parent != nil && at.parent.walk == i+1 {
				at.parent = nil
			}
		}
	}
}

// nameChains gives each row the id of its session: the transcript's, or one below it for a subagent. A subagent in the file
// of its parent has no id of its own: its first row names it.
func (t *transcripts) nameChains() {
	var path []*claudeRow
	for _, r := range t.rows {
		switch {
		case r.agent != "":
			r.chain = r.session + "/" + r.agent
		case !r.sidechain:
			r.chain = r.session
		default:
			path = path[:0]
			at := r
			for ; at.chain == "" && at.parent != nil; at = at.parent {
				path = append(path, at)
			}
			if at.chain == "" {
				at.chain = at.session + "/" + cmp.Or(at.uuid, "sidechain")
			}
			for _, below := range path {
				below.chain = at.chain
			}
		}
	}
}

// gatherResponses puts the rows of responses together and finds what each goes on from.
func (t *transcripts) gatherResponses() {
	for _, r := range t.rows {
		if r.kind != "assistant" || r.failed {
			if r.kind != "user" {
				skipKind(&t.read, cmp.Or(map[bool]string{true: "error"}[r.failed], r.kind))
			}
			continue
		}
		key := r.message + "\x00" + r.request
		if r.message == "" {
			key = cmp.Or(r.uuid, rowPlace(r.file, r.line))
		}
		if r.response = t.responses[key]; r.response == nil {
			r.response = &claudeResponse{}
			t.responses[key] = r.response
			t.order = append(t.order, r.response)
		}
		r.response.rows = append(r.response.rows, r)
	}
	for _, response := range t.order {
		t.dropRetold(response)
	}
	var path []*claudeRow
	for _, r := range t.rows {
		path = path[:0]
		at := r
		for ; at != nil && at.response == nil && at.behind == nil; at = at.parent {
			path = append(path, at)
		}
		if at != nil && len(path) > 0 {
			behind := cmp.Or(at.response, at.behind)
			for _, below := range path {
				below.behind = behind
			}
		}
		if len(r.results) > 0 && r.behind != nil {
			r.behind.results = append(r.behind.results, r)
		}
	}
	for _, response := range t.order {
		for at := response.rows[0].parent; at != nil; at = at.parent {
			if from := cmp.Or(at.response, at.behind); from != response {
				response.from = from
				break
			}
		}
	}
}

// dropRetold keeps the rows of one session of a response that several tell: older versions copied rows under new ids.
func (t *transcripts) dropRetold(response *claudeResponse) {
	keep := response.rows[0]
	for _, r := range response.rows {
		if r.chain != keep.chain && t.original(r, keep) {
			keep = r
		}
	}
	response.rows = slices.DeleteFunc(response.rows, func(r *claudeRow) bool {
		if r.chain == keep.chain {
			return false
		}
		t.read.Skip("copies of other rows")
		return true
	})
}
