package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/report"
)

// output is the folder and the page that results go to; none where they are "".
type output struct {
	dir, html string
	force     bool
}

const reportName = "report.json"

// prepare refuses a folder that holds a report already, a page that is there, and one whose folder is not.
func (o output) prepare() error {
	if o.dir != "" {
		path := filepath.Join(o.dir, reportName)
		_, err := os.Stat(path)
		if err == nil && !o.force {
			return usagef("%s is there already; take another folder or --force", path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return usagef("looking into the output folder: %w", err)
		}
	}
	if o.html == "" {
		return nil
	}
	return prepareFile("--html", o.html, o.force)
}

// prepareFile refuses a file to write that is there already, and one whose folder is not. Flag is what named it.
func prepareFile(flag, path string, force bool) error {
	if path == "-" {
		return usagef("%s -: results go to a file, not to the standard output; name one", flag)
	}
	switch at, err := os.Stat(path); {
	case err == nil && at.IsDir():
		return usagef("%s %s is a folder; name a file in it", flag, path)
	case err == nil && !at.Mode().IsRegular(): // which a rename would replace
		return usagef("%s %s is no regular file", flag, path)
	case err == nil && !force:
		return usagef("%s is there already; take another file or --force", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return usagef("looking for %s %s: %w", flag, path, err)
	}
	if folder, err := os.Stat(filepath.Dir(path)); err != nil || !folder.IsDir() {
		return usagef("%s %s: there is no folder %s", flag, path, filepath.Dir(path))
	}
	return nil
}

// write writes all results.
func (o output) write(rep *report.Report, b *batch) error {
	if o.dir != "" {
		if err := o.writeFolder(rep, b); err != nil {
			return err
		}
	}
	if o.html == "" {
		return nil
	}
	var page bytes.Buffer
	if err := report.WriteHTML(&page, rep); err != nil {
		return err
	}
	return writeFile(o.html, page.Bytes())
}

// writeFolder writes report.json, the resolved config of each run, and the predicted traces if asked for.
func (o output) writeFolder(rep *report.Report, b *batch) error {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return fmt.Errorf("making the output folder: %w", err)
	}
	for _, c := range b.cells {
		if c.file == "" {
			continue
		}
		text, err := yaml.Marshal(c.plan.Deployment)
		if err != nil {
			return fmt.Errorf("encoding the config of %q: %w", c.plan.Name, err)
		}
		if err := writeFile(filepath.Join(o.dir, c.file+".config.yaml"), text); err != nil {
			return err
		}
		if b.traces && c.result != nil {
			if err := writeTrace(filepath.Join(o.dir, c.file+".trace"), c.result); err != nil {
				return err
			}
		}
	}
	var text bytes.Buffer
	if err := report.Write(&text, rep); err != nil {
		return err
	}
	return writeFile(filepath.Join(o.dir, reportName), text.Bytes())
}

// writeTrace writes a run's predicted trace as segments with the given prefix.
func writeTrace(prefix string, result *sim.Result) error {
	return writeRecords(prefix, result.Records(), trace.ReplaceExisting)
}

// writeCapture writes the calls and tools of a linked capture as segments with the given prefix, whose folder is made. It
// returns what they have no place for.
func writeCapture(prefix string, c *trace.Capture, force bool) ([]convert.Count, error) {
	if err := os.MkdirAll(filepath.Dir(prefix), 0o755); err != nil {
		return nil, fmt.Errorf("making the output folder: %w", err)
	}
	existing := trace.RefuseExisting
	if force {
		existing = trace.ReplaceExisting
	}
	records, lost := convert.Records(c)
	err := writeRecords(prefix, records, existing)
	if errors.Is(err, fs.ErrExist) {
		err = usagef("%w; take another prefix or --force", err)
	}
	return lost, err
}

// writeRecords writes records as segments with the given prefix.
func writeRecords(prefix string, records iter.Seq[*trace.Record], existing trace.Existing) error {
	w, err := trace.NewWriter(prefix, trace.WriterOptions{Existing: existing})
	if err != nil {
		return err
	}
	for rec := range records {
		if err := w.Write(rec); err != nil {
			w.Discard()
			return err
		}
	}
	return w.Close()
}

// writeFile writes a file under a temporary name and renames it.
func writeFile(path string, text []byte) error {
	return writeStream(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// writeStream writes a file under a temporary name as its contents come, and renames it.
func writeStream(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	err = write(tmp)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return nil
}

// fileName makes a name fit for a file.
func fileName(name string) string {
	mapped := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.=", r) {
			return r
		}
		return '-'
	}, name)
	if mapped = strings.Trim(mapped, ".-"); mapped == "" {
		return "run"
	}
	return mapped
}

func unique(name string, taken map[string]bool) string {
	n := name
	for i := 2; taken[n]; i++ {
		n = fmt.Sprintf("%s-%d", name, i)
	}
	taken[n] = true
	return n
}
