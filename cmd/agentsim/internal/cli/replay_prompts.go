package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/replay/prompts"
)

// promptFlags say what prompts are made of.
type promptFlags struct {
	kind       string
	salt       string
	tokenRange string
}

const (
	promptIDs  = "token-ids"
	promptText = "text"
)

func (p *promptFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.kind, "prompts", promptIDs, "what prompts are made of: token-ids (exact) or text (calibrated words)")
	f.StringVar(&p.tokenRange, "token-range", fmt.Sprintf("%d-%d", prompts.DefaultLowID, prompts.DefaultHighID-1), "the token ids to use")
	f.StringVar(&p.salt, "salt", "", "sets prompts apart from those of other replays (default: random); the same again finds a warm cache")
}

func (p *promptFlags) ids() bool { return p.kind == promptIDs }

// check refuses what no prompts can be made of.
func (p *promptFlags) check() error {
	if p.kind != promptIDs && p.kind != promptText {
		return usagef("--prompts %s: want %s or %s", p.kind, promptIDs, promptText)
	}
	_, err := p.tokenIDs()
	return err
}

// tokenIDs is the alphabet of the token range.
func (p *promptFlags) tokenIDs() (*prompts.Alphabet, error) {
	low, high, _ := strings.Cut(p.tokenRange, "-")
	first, err := strconv.Atoi(low)
	last, err2 := strconv.Atoi(high)
	if errors.Join(err, err2) != nil {
		return nil, usagef("--token-range %s: want FIRST-LAST, such as 10000-29999", p.tokenRange)
	}
	a, err := prompts.TokenIDs(first, last+1)
	if err != nil {
		return nil, usagef("--token-range: %w", err)
	}
	return a, nil
}

// maker makes the maker of prompts, and returns the tokens that the server adds to each.
func (p *promptFlags) maker(ctx context.Context, g *Global, pl *plan.Plan, c *client.Client, model string) (*prompts.Maker, int, error) {
	if p.salt == "" {
		p.salt = rand.Text()[:8]
	}
	salt := xxh3.HashString(p.salt)
	if p.ids() {
		a, err := p.tokenIDs()
		if err != nil {
			return nil, 0, err
		}
		return prompts.NewMaker(pl.Workload, a, salt, prompts.Scale{}), 0, nil
	}
	cal, err := replay.Calibrate(ctx, c, 0, model)
	if errors.Is(err, replay.ErrNoCount) {
		fmt.Fprintln(g.Stderr, wrap("note: "+err.Error()+": a word is taken for a token", g.Width))
		cal = &replay.Calibration{Words: prompts.List()}
	} else if err != nil {
		return nil, 0, err
	} else if !cal.Exact {
		fmt.Fprintln(g.Stderr, wrap(fmt.Sprintf("note: the server does not take words for single tokens: %.3f tokens a word on average, so prompts are of about the recorded length",
			cal.Scale.PerWord), g.Width))
	}
	a, err := prompts.Words(cal.Words)
	if err != nil {
		return nil, 0, err
	}
	if !c.Chat() {
		return prompts.NewMaker(pl.Workload, a, salt, cal.Scale), cal.Scale.Overhead, nil
	}
	if cal.Scale.PerMessage == 0 {
		fmt.Fprintln(g.Stderr, wrap("note: the server does not tell what a chat of several messages adds, or takes none: every prompt is one message of the user", g.Width))
	}
	return prompts.NewChatMaker(pl.Workload, a, salt, cal.Scale), cal.Scale.Overhead + 2*cal.Scale.PerMessage, nil
}

// parseSessions reads a count of sessions, or a share of them.
func parseSessions(text string) (count int, share float64, err error) {
	bad := usagef("--sessions %s: want a count, or a share such as 0.1 or 10%%", text)
	if text == "" {
		return 0, 0, nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 {
			return 0, 0, bad
		}
		return n, 0, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	share, err = strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share > 0 && share <= 1) {
		return 0, 0, bad
	}
	return 0, share, nil
}

// requestFile is the file of outcomes, written as they end so that what was done survives whatever happens.
type requestFile struct {
	file *os.File // nil for none
	enc  *json.Encoder
}

const requestsName = "requests.jsonl"

func newRequestFile(out output) (*requestFile, error) {
	if out.dir == "" {
		return &requestFile{}, nil
	}
	if err := os.MkdirAll(out.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the output folder: %w", err)
	}
	f, err := os.Create(filepath.Join(out.dir, requestsName))
	if err != nil {
		return nil, fmt.Errorf("writing outcomes: %w", err)
	}
	r := &requestFile{file: f, enc: json.NewEncoder(f)}
	r.enc.SetEscapeHTML(false)
	return r, nil
}

func (r *requestFile) write(l *replay.Line) error {
	if r.file == nil {
		return nil
	}
	return r.enc.Encode(l)
}

func (r *requestFile) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	if err != nil {
		return fmt.Errorf("writing outcomes: %w", err)
	}
	return nil
}
