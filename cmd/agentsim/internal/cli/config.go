package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
)

// maxConfigBytes and maxBrackets bound a config file; the YAML parser takes quadratic time on deep nesting.
const (
	maxConfigBytes = 64 << 10
	maxBrackets    = 500
)

// loadConfig reads a deployment's YAML file over the defaults; one of aisimulate also names a trace. Errors name file, line
// and column.
func loadConfig(file string) (sim.Deployment, traffic, error) {
	d := sim.Default()
	text, err := os.ReadFile(file)
	if err != nil {
		return d, traffic{}, usagef("reading the config: %w", err)
	}
	if err := boundConfig(file, text); err != nil {
		return d, traffic{}, err
	}
	if p := readPrediction(file, text); p != nil {
		return p.deployment()
	}
	err = decode(&d, text, func(line, column int) string { return fmt.Sprintf("%s:%d:%d", file, line, column) }, file)
	if policy := d.Router.PolicyConfig; policy != "" && !filepath.IsAbs(policy) {
		d.Router.PolicyConfig = filepath.Join(filepath.Dir(file), policy)
	}
	return d, traffic{}, err
}

// boundConfig refuses a text that is too much for the YAML parser.
func boundConfig(file string, text []byte) error {
	if len(text) > maxConfigBytes || strings.Count(string(text), "[")+strings.Count(string(text), "{") > maxBrackets {
		return usagef("reading the config %s: more than %d KiB or %d brackets is no deployment", file, maxConfigBytes>>10, maxBrackets)
	}
	return nil
}

// decode sets the keys of a YAML text in a deployment. Where names the text in errors, whereAt a place in it.
func decode(d *sim.Deployment, text []byte, whereAt func(line, column int) string, where string) error {
	var keys map[string]any
	if yaml.Unmarshal(text, &keys) == nil && len(keys) == 0 {
		return nil // the decoder would clear the deployment
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	err := decoder.Decode(d)
	if err == nil && !errors.Is(decoder.Decode(new(any)), io.EOF) {
		return usagef("%s: more than one YAML document", where)
	}
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil {
		pos := ye.GetToken().Position
		return usagef("%s: %s", whereAt(pos.Line, pos.Column), decodeMessage(ye))
	}
	if err != nil {
		return usagef("%s: %w", where, err)
	}
	return refuseFractions(text, where)
}

// decodeMessage says what is wrong in the words of YAML: the decoder's own speaks of Go types.
func decodeMessage(err yaml.Error) string {
	message := err.GetMessage()
	if name, ok := strings.CutPrefix(message, "unknown field "); ok {
		name = strings.Trim(name, `"`)
		if slices.Contains(policyFileKeys, name) {
			return fmt.Sprintf("%q is of a router policy file of Dynamo; name that with router.policy_config: FILE (or --set)", name)
		}
		return fmt.Sprintf("unknown key %q%s", name, suggestion(name, lastParts(configKeys())))
	}
	var wrong *yaml.TypeError
	var overflow *yaml.OverflowError
	switch {
	case errors.As(err, &wrong):
		value := strconv.Quote(err.GetToken().Value)
		switch {
		case wrong.SrcType == nil: // a tag that YAML does not know
		case wrong.SrcType.Kind() == reflect.Slice:
			value = "a list"
		case wrong.SrcType.Kind() == reflect.Map:
			value = "a group of keys"
		}
		return fmt.Sprintf("%s is not %s", value, kindText(wrong.DstType))
	case errors.As(err, &overflow):
		return fmt.Sprintf("%s is too large or negative for %s", err.GetToken().Value, kindText(overflow.DstType))
	}
	return message
}

// policyFileKeys are the sections of a router policy file that no deployment has.
var policyFileKeys = []string{"request_classifier", "worker_selection"}

// kindText names what a key of the given type takes.
func kindText(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s"
	case isWhole(t):
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "a group of keys"
}

// isWhole tells whether a key of the given type takes a whole number.
func isWhole(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return t != reflect.TypeFor[time.Duration]()
	}
	return false
}

// refuseFractions finds numbers with a fraction where the key takes a whole number: the YAML decoder drops the
// fraction without a word.
func refuseFractions(text []byte, where string) error {
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return usagef("%s: %w", where, err)
	}
	whole := map[string]bool{}
	note := func(path string, t reflect.Type, _ []int) { whole[path] = isWhole(t) }
	walkKeys(reflect.TypeFor[sim.Deployment](), "", func(path string, t reflect.Type, index []int) {
		note(path, t, index)
		if t.Kind() == reflect.Slice {
			walkKeys(t.Elem(), path+".", note)
		}
	})
	var walk func(path string, v any) error
	walk = func(path string, v any) error {
		switch v := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				if err := walk(strings.TrimPrefix(path+"."+k, "."), v[k]); err != nil {
					return err
				}
			}
		case []any:
			for _, item := range v {
				if err := walk(path, item); err != nil {
					return err
				}
			}
		case float64:
			if whole[path] && v != math.Trunc(v) {
				return usagef("%s: %s: %v is not a whole number", where, path, v)
			}
		}
		return nil
	}
	return walk("", tree)
}

// set applies "path=value". The value is YAML. A glob of models is set beside those that are set already.
func set(d *sim.Deployment, assignment string) error {
	path, value, ok := strings.Cut(assignment, "=")
	if !ok {
		return usagef("--set %s: want path=value, such as engine.block_size=32", assignment)
	}
	if glob, ok := strings.CutPrefix(path, "models."); ok {
		models := map[string]string{glob: value}
		for known, what := range d.Models {
			if known != glob {
				models[known] = what
			}
		}
		d.Models = models
		return nil
	}
	if key, ok := strings.CutPrefix(path, "router.thunderagent.parameters."); ok {
		parameters := maps.Clone(d.Router.ThunderAgent.Parameters)
		if parameters == nil {
			parameters = map[string]any{}
		}
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil {
			return usagef("--set %s: %q is not a YAML value", assignment, value)
		}
		parameters[key] = v
		d.Router.ThunderAgent.Parameters = parameters
		return nil
	}
	if !slices.Contains(configKeys(), path) {
		return usagef("--set %s: unknown key %q%s", assignment, path, suggestion(path, configKeys()))
	}
	var text strings.Builder
	parts := strings.Split(path, ".")
	for i, part := range parts {
		text.WriteString(strings.Repeat(" ", i) + fmt.Sprintf("%q:", part))
		if i < len(parts)-1 {
			text.WriteByte('\n')
		}
	}
	if strings.ContainsAny(value, "\n\r#") || value == "" {
		value = fmt.Sprintf("%q", value)
	}
	text.WriteString(" " + value + "\n")
	where := "--set " + assignment
	return decode(d, []byte(text.String()), func(int, int) string { return where }, where)
}

// configKeys lists the paths of all keys of a deployment, in the order of the config.
func configKeys() []string {
	var keys []string
	walkKeys(reflect.TypeFor[sim.Deployment](), "", func(path string, _ reflect.Type, _ []int) { keys = append(keys, path) })
	return keys
}

// walkKeys calls each with the path, type and field index of every key that holds a value.
func walkKeys(t reflect.Type, prefix string, each func(path string, t reflect.Type, index []int)) {
	var walk func(t reflect.Type, prefix string, index []int)
	walk = func(t reflect.Type, prefix string, index []int) {
		for i := range t.NumField() {
			f := t.Field(i)
			at := append(slices.Clone(index), i)
			name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			switch {
			case option == "inline":
				walk(f.Type, prefix, at)
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, prefix+name+".", at)
			default:
				each(prefix+name, f.Type, at)
			}
		}
	}
	walk(t, prefix, nil)
}

func lastParts(paths []string) []string {
	var parts []string
	for _, p := range paths {
		parts = append(parts, strings.Split(p, ".")...)
	}
	return parts
}

// suggestion returns `, did you mean "x"?` for the known name nearest to name, or "" when none is near.
func suggestion(name string, known []string) string {
	best, at := "", 1+len(name)/3
	for _, k := range known {
		if d := models.EditDistance(name, k); d <= at && (d < at || best == "") {
			best, at = k, d
		}
		if strings.HasSuffix(k, "."+name) {
			return fmt.Sprintf(", did you mean %q?", k)
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}
