package anonymize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// format is a kind of file, one JSON object a line.
type format struct {
	name string
	row  rule
	// file returns the name of the anonymized file, which is the n-th of its format, without its suffix.
	file func(r *rewriter, name string, n int) string
}

// newFormats returns the formats by name.
func newFormats() map[string]*format {
	formats := map[string]*format{}
	for _, f := range []*format{
		{"dynamo", dynamoRow(), numbered("trace.%06d")},
		{"mooncake", mooncakeRow(), numbered("mooncake.%06d")},
		{"weka", wekaConversation(), numbered("weka.%06d")},
		{"claude-code", claudeRow(), claudeFile},
		{"claude-code-meta", claudeMeta(), claudeFile},
		{"codex", codexRow(), codexFile},
	} {
		formats[f.name] = f
	}
	return formats
}

// detect returns the name of the format that the first bytes of a file look like, or "".
func detect(head []byte) string {
	for rows := 0; len(head) > 0 && rows < 64; rows++ {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte{'\n'})
		if name := detectRow(topLevel(line)); name != "" {
			return name
		}
	}
	return ""
}

// topLevel returns the keys of a JSON object, which may be cut off, with their values where these are strings.
func topLevel(line []byte) map[string]string {
	keys := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(line))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return keys
	}
	for {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return keys
		}
		value, err := d.Token()
		keys[name], _ = value.(string)
		for depth := nesting(value); depth > 0 && err == nil; depth += nesting(value) {
			value, err = d.Token()
		}
		if err != nil {
			return keys
		}
	}
}

func nesting(t json.Token) int {
	switch t {
	case json.Delim('{'), json.Delim('['):
		return 1
	case json.Delim('}'), json.Delim(']'):
		return -1
	}
	return 0
}

func detectRow(keys map[string]string) string {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { _, ok := keys[n]; return ok })
	}
	codex := []string{"session_meta", "turn_context", "response_item", "event_msg", "compacted",
		"reasoning", "function_call", "function_call_output"}
	switch {
	case strings.HasPrefix(keys["schema"], "dynamo.agentic_mooncake"):
		return "mooncake"
	case has("event", "event_type"), strings.HasPrefix(keys["schema"], "dynamo."):
		return "dynamo"
	case has("hash_ids", "input_length", "output_length"):
		return "mooncake"
	case has("requests") && has("block_size"):
		return "weka"
	case slices.Contains(codex, keys["type"]), has("instructions") && has("timestamp"), keys["type"] == "message" && has("role"):
		return "codex"
	case has("agentType"):
		return "claude-code-meta"
	case has("sessionId", "leafUuid", "parentUuid", "isSidechain"), keys["type"] != "" && has("message", "summary"):
		return "claude-code"
	}
	return ""
}

func numbered(pattern string) func(*rewriter, string, int) string {
	return func(_ *rewriter, _ string, n int) string { return fmt.Sprintf(pattern, n) }
}

// claudeFile keeps what Claude Code's own file names say: SESSION.jsonl, agent-AGENT.jsonl, and the folders between.
func claudeFile(r *rewriter, name string, _ int) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		prefix, suffix := "", ""
		if i == len(parts)-1 && strings.HasSuffix(part, ".meta") {
			part, suffix = strings.TrimSuffix(part, ".meta"), ".meta"
		}
		for _, p := range []string{"agent-", "wf_"} {
			if strings.HasPrefix(part, p) {
				prefix, part = p, part[len(p):]
			}
		}
		if part != "subagents" && part != "workflows" {
			part = r.names.id(part)
		}
		parts[i] = prefix + part + suffix
	}
	return path.Join(parts...)
}

// rollout is the name of a Codex rollout: its local time and the thread's id.
var rollout = regexp.MustCompile(`^rollout-(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)-(.+)$`)

const rolloutTime = "2006-01-02T15-04-05"

// codexFile keeps the form of a rollout's name, with the time moved, and no folders, which have dates for names.
func codexFile(r *rewriter, name string, _ int) string {
	base := path.Base(name)
	if m := rollout.FindStringSubmatch(base); m != nil {
		if t, err := time.Parse(rolloutTime, m[1]); err == nil {
			return "rollout-" + t.Add(r.shift).Format(rolloutTime) + "-" + r.names.id(m[2])
		}
	}
	return r.names.id(base)
}
