package models

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:embed catalogue/*.yaml catalogue/profiles
var catalogueFiles embed.FS

// The catalogues, each read once.
var (
	modelCatalogue   = sync.OnceValues(func() ([]*Model, error) { return readCatalogue[Model]("models.yaml") })
	gpuCatalogue     = sync.OnceValues(func() ([]*GPU, error) { return readCatalogue[GPU]("gpus.yaml") })
	opsCatalogue     = sync.OnceValues(func() ([]*Ops, error) { return readCatalogue[Ops]("ops.yaml") })
	profileCatalogue = sync.OnceValues(readProfiles)
)

// readCatalogue decodes one embedded file and checks each of its entries.
func readCatalogue[T any, P interface {
	*T
	Validate() error
}](file string) ([]P, error) {
	data, err := catalogueFiles.ReadFile("catalogue/" + file)
	if err != nil {
		return nil, err
	}
	var list []P
	if err := decodeStrict(data, &list); err != nil {
		return nil, fmt.Errorf("reading the catalogue %s: %w", file, err)
	}
	for _, entry := range list {
		if err := entry.Validate(); err != nil {
			return nil, fmt.Errorf("reading the catalogue %s: %w", file, err)
		}
	}
	return list, nil
}

// readProfiles reads the profiles of profiles.yaml, then those of the files in profiles, one each, in the order of their names.
func readProfiles() ([]*Profile, error) {
	list, err := readCatalogue[Profile]("profiles.yaml")
	if err != nil {
		return nil, err
	}
	files, err := catalogueFiles.ReadDir("catalogue/profiles")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		data, err := catalogueFiles.ReadFile("catalogue/profiles/" + f.Name())
		if err != nil {
			return nil, err
		}
		p := new(Profile)
		if err := decodeStrict(data, p); err != nil {
			return nil, fmt.Errorf("reading the catalogue profiles/%s: %w", f.Name(), err)
		}
		if err := p.Validate(); err != nil {
			return nil, fmt.Errorf("reading the catalogue profiles/%s: %w", f.Name(), err)
		}
		list = append(list, p)
	}
	return list, nil
}

// decodeStrict decodes YAML, taking unknown and repeated keys as errors.
func decodeStrict(data []byte, into any) error {
	return yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(into)
}

// Models lists the catalogue's models in its order.
func Models() []string {
	list, _ := modelCatalogue()
	return names(list, modelNames)
}

// GPUs lists the catalogue's GPUs in its order.
func GPUs() []string {
	list, _ := gpuCatalogue()
	return names(list, gpuNames)
}

// Profiles lists the catalogue's cost profiles in its order.
func Profiles() []string {
	list, _ := profileCatalogue()
	return names(list, profileNames)
}

func names[T any](list []T, namesOf func(T) []string) []string {
	out := make([]string, len(list))
	for i, entry := range list {
		out[i] = namesOf(entry)[0]
	}
	return out
}

func modelNames(m *Model) []string     { return append([]string{m.Name}, m.Aliases...) }
func gpuNames(g *GPU) []string         { return append([]string{g.Name}, g.Aliases...) }
func opsNames(o *Ops) []string         { return []string{o.Name} }
func profileNames(p *Profile) []string { return []string{p.Name} }

// Lookup finds a model by its catalogue name, in any case and with or without an organisation ("Qwen/Qwen3-14B"), or
// reads the Hugging Face config.json at a path. A folder stands for the config.json in it. The result must not be changed.
func Lookup(nameOrPath string) (*Model, error) {
	list, err := modelCatalogue()
	if err != nil {
		return nil, err
	}
	name := nameOrPath
	if i := strings.LastIndexByte(name, '/'); i >= 0 && strings.Count(name, "/") == 1 {
		name = name[i+1:]
	}
	if m, ok := find(list, modelNames, name); ok {
		return m, nil
	}
	path, ok := configPath(nameOrPath)
	if ok {
		return ReadConfig(path)
	}
	return nil, unknown("model", nameOrPath, list, modelNames, "or a path to a config.json")
}

// configPath tells whether a name is the path of a configuration file or of a folder that has one.
func configPath(name string) (string, bool) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return filepath.Join(name, "config.json"), true
	case err == nil:
		return name, true
	}
	return name, strings.HasSuffix(strings.ToLower(name), ".json")
}

// LookupGPU finds a GPU by its catalogue name in any case, such as "h100-sxm" or "h100". The result must not be changed.
func LookupGPU(name string) (*GPU, error) {
	list, err := gpuCatalogue()
	if err != nil {
		return nil, err
	}
	if g, ok := find(list, gpuNames, name); ok {
		return g, nil
	}
	return nil, unknown("gpu", name, list, gpuNames, "")
}

// LookupProfile finds a cost profile by its catalogue name, or reads the YAML file at a path, whose keys are those of
// Profile; factors that it leaves out are 1. A name with a slash or ending in .yaml or .yml is a path. The result must not be changed.
func LookupProfile(nameOrPath string) (*Profile, error) {
	list, err := profileCatalogue()
	if err != nil {
		return nil, err
	}
	if p, ok := find(list, profileNames, nameOrPath); ok {
		return p, nil
	}
	switch ext := strings.ToLower(filepath.Ext(nameOrPath)); {
	case ext != ".yaml" && ext != ".yml" && !strings.ContainsRune(nameOrPath, '/'):
		return nil, unknown("cost profile", nameOrPath, list, profileNames, "or a path to a .yaml file")
	}
	data, err := readBounded(nameOrPath, maxProfileBytes)
	if err != nil {
		return nil, fmt.Errorf("reading a cost profile: %w", err)
	}
	if bytes.Count(data, []byte{'['})+bytes.Count(data, []byte{'{'}) > maxProfileBrackets {
		return nil, fmt.Errorf("reading cost profile %s: more than %d brackets", nameOrPath, maxProfileBrackets)
	}
	p := &Profile{Name: nameOrPath, Linear: 1, PrefillAttention: 1, DecodeAttention: 1, Communication: 1}
	if err := decodeStrict(data, p); err != nil {
		return nil, fmt.Errorf("reading cost profile %s: %w", nameOrPath, err)
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", nameOrPath, err)
	}
	return p, nil
}

// Bounds on the size of a file. The YAML parser takes quadratic time on deep nesting, hence that on brackets.
const (
	maxConfigBytes     = 1 << 20
	maxProfileBytes    = 1 << 16
	maxProfileBrackets = 500
)

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, nil
}

func find[T any](list []T, namesOf func(T) []string, name string) (found T, ok bool) {
	for _, entry := range list {
		for _, n := range namesOf(entry) {
			if strings.EqualFold(n, name) {
				return entry, true
			}
		}
	}
	return found, false
}

// unknown is the error for a name that the catalogue lacks, with the names nearest to it.
func unknown[T any](kind, name string, list []T, namesOf func(T) []string, also string) error {
	type candidate struct {
		name     string
		distance int
	}
	given := strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	if len(given) > 100 {
		return fmt.Errorf("unknown %s: a name of %d bytes, starting with %.40q", kind, len(name), name)
	}
	var near []candidate
	for _, entry := range list {
		best := candidate{distance: len(given)}
		for _, n := range namesOf(entry) {
			if d := EditDistance(given, n); d < best.distance {
				best = candidate{namesOf(entry)[0], d}
			}
		}
		if best.name != "" {
			near = append(near, best)
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return a.distance - b.distance })
	message := fmt.Sprintf("unknown %s %q", kind, name)
	if len(near) > 0 {
		var nearest []string
		for _, c := range near[:min(3, len(near))] {
			nearest = append(nearest, c.name)
		}
		message += "; the nearest known are " + strings.Join(nearest, ", ")
	}
	if also != "" {
		message += " (want a catalogue name " + also + ")"
	}
	return errors.New(message)
}

// EditDistance is the number of bytes to insert, delete or replace to turn a into b (Levenshtein), for suggesting the
// name that was meant.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
