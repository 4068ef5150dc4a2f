package convert

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// strangers are files that people take for traces, by what they begin with, or have in their beginning.
var strangers = []struct {
	begins, holds, what string
}{
	{"SQLite format 3\x00", "", "an SQLite database, which is not read. OpenCode from 1.2 on keeps its sessions in opencode.db: 'opencode export SESSION > session.json' writes one that import takes"},
	{"PAR1", "", "a Parquet file, which is not read: write its rows as JSON lines, as with DuckDB: COPY (FROM 'x.parquet') TO 'x.jsonl'"},
	{"PK\x03\x04", "", "a zip archive: unpack it first"},
	{"\x28\xb5\x2f\xfd", "", "a zstd archive: unpack it first, or compress with gzip"},
	{"version https://git-lfs.github.com/", "", "a pointer of Git LFS, not the file: 'git lfs pull' fetches it"},
	{"<", "", "a web page or XML: download the file itself"},
	{"{", `"agentsim.report.v`, "a report of agentsim predict, not a trace; name one row's trace that --traces wrote beside it, such as DIR/kv.trace"},
	{"{", `"type":"thread.started"`, "the output of codex exec --json, which tells no times, and of tokens only the sum of each turn: import the rollout that Codex wrote of the same run, below ~/.codex/sessions"},
}

// refuse says why a file of no known format is not read. Want is the format that was asked for, or nil.
func (s *segment) refuse(want *Format) error {
	head := bytes.TrimSpace(s.head)
	for _, stranger := range strangers {
		if bytes.HasPrefix(head, []byte(stranger.begins)) && bytes.Contains(head, []byte(stranger.holds)) {
			return &trace.InputError{File: s.Path, Err: errors.New(stranger.what)}
		}
	}
	err := fmt.Errorf("unknown format, it begins %.60q; known are %s", s.head, formatNames())
	switch {
	case bytes.IndexByte(head, 0) >= 0:
		err = errors.New("a binary file, not a trace")
	case want != nil:
		err = fmt.Errorf("format %s was asked for, but the file does not look like it, nor like another that is known; it begins %.60q", want.Name, s.head)
	}
	return &trace.InputError{File: s.Path, Err: err}
}

// refuseFolder says why a folder is not read in which, and below which, are files that may be traces.
func refuseFolder(dir string, below []segment) error {
	reason := "no trace (.jsonl, .json, .csv, plain or .gz) in this folder, and no logs of agents in the folders below"
	for _, s := range below {
		if s.looks != nil && !s.looks.tree {
			reason += fmt.Sprintf("; %s looks like %s: name the folder that it is in", s.Path, s.looks.Name)
			break
		}
	}
	if databases, _ := filepath.Glob(filepath.Join(strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`).Replace(dir), "*.db")); len(databases) > 0 {
		reason += fmt.Sprintf("; %s: %s", databases[0], strangers[0].what)
	}
	return &trace.InputError{File: dir, Err: errors.New(reason)}
}
