package router

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// agents is the queue of two families in two buckets, and of a class that requests name.
const agents = `
default_policy_family: agents
uncached_isl_buckets:
  - {min_tokens: 0, bucket: short}
  - {min_tokens: 1000, bucket: long}
policy_classes:
  - {name: agents-short, policy_family: agents, cache_bucket: short, quantum: 4000, prefill_busy_threshold: 100}
  - {name: agents-long, policy_family: agents, cache_bucket: long, quantum: 1000, queue_policy: wspt, prefill_busy_threshold_frac: 0.5, busy_worker_ratio: 0.5}
  - {name: chat-short, policy_family: chat, cache_bucket: short, quantum: 1, request_queue_limit_per_worker: 0}
  - {name: chat-long, policy_family: chat, cache_bucket: long, quantum: 1}
  - {name: batch, quantum: 1, prefill_busy_threshold: 0}
`

// queueSettings reads a queue as a config has it.
func queueSettings(t testing.TB, text string) Settings {
	t.Helper()
	s := Defaults("kv")
	if err := yaml.UnmarshalWithOptions([]byte(text), &s, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestClassOfRequest(t *testing.T) {
	s := queueSettings(t, agents)
	if _, err := New(s, Pool{Workers: 1, BlockSize: 16}, 1); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		uncached int64
		want     string
	}{
		{"", 0, "agents-short"},
		{"", 999, "agents-short"},
		{"", 1000, "agents-long"},
		{"chat", 0, "chat-short"},
		{"chat", 1 << 40, "chat-long"},
		{"batch", 1 << 40, "batch"},
		{"chat-short", 0, "agents-short"}, // a class that has a family is not for the asking
		{"nobody", 1000, "agents-long"},
	} {
		if got := s.Classes[s.class(test.name, test.uncached)].Name; got != test.want {
			t.Errorf("request of %q with %d uncached tokens is of class %s, want %s", test.name, test.uncached, got, test.want)
		}
		if got, want := s.sized(test.name), test.want != "batch"; got != want {
			t.Errorf("whether the class of %q depends on length: %v, want %v", test.name, got, want)
		}
	}
	// Without classes all requests are of one.
	one := Defaults("kv")
	if got := one.class("batch", 5); got != 0 || len(one.classes()) != 1 || one.sized("batch") {
		t.Errorf("without classes a request is of class %d of %d", got, len(one.classes()))
	}
}

func TestBusy(t *testing.T) {
	tokens, fraction, ratio := int64(100), 0.5, 0.95
	for _, test := range []struct {
		name    string
		class   Class
		prefill int64
		want    bool
	}{
		{"at the tokens", Class{ThresholdTokens: &tokens}, 100, false},
		{"above the tokens", Class{ThresholdTokens: &tokens}, 101, true},
		{"at the fraction of 400", Class{Threshold: &fraction}, 200, false},
		{"above the fraction of 400", Class{Threshold: &fraction}, 201, true},
		{"either is enough", Class{ThresholdTokens: &tokens, Threshold: &fraction}, 101, true},
		{"none", Class{}, 1 << 40, false},
	} {
		if got := test.class.busy(test.prefill, 400); got != test.want {
			t.Errorf("%s: busy is %v, want %v", test.name, got, test.want)
		}
	}
	for _, test := range []struct {
		ratio         *float64
		busy, workers int
		want          bool
	}{
		{nil, 127, 128, false}, {nil, 128, 128, true},
		{&ratio, 121, 128, false}, {&ratio, 122, 128, true}, // 0.95 * 128 = 121.6
		{&ratio, 1, 2, false}, {&ratio, 2, 2, true},
	} {
		c := Class{BusyWorkerRatio: test.ratio}
		if got := c.allBusy(test.busy, test.workers); got != test.want {
			t.Errorf("%d of %d busy workers are too many: %v, want %v", test.busy, test.workers, got, test.want)
		}
	}
}

func TestQueueErrors(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{"default_policy_family: agents", "queue_policy: sjf", `router.queue_policy: "sjf" is unknown, want fcfs, wspt or lcfs`},
		{"default_policy_family: agents", "default_policy_family: none", `router.default_policy_family: "none" is no family of router.policy_classes`},
		{"default_policy_family: agents", "queue_threshold: 1", "router.policy_classes: they have thresholds of their own; leave router.queue_threshold"},
		{"default_policy_family: agents", "busy_worker_ratio: 0.5", "router.busy_worker_ratio: without router.queue_threshold"},
		{"default_policy_family: agents", "queue_threshold: -1", "router.queue_threshold: -1 is not within 0..1e+06"},
		{"default_policy_family: agents", "busy_worker_ratio: 16", "router.busy_worker_ratio: 16 is not within 0..1"},
		{"min_tokens: 0", "min_tokens: 1", "router.uncached_isl_buckets[0]: min_tokens is 1, the first bucket begins at 0"},
		{"min_tokens: 1000", "min_tokens: 0", "router.uncached_isl_buckets[1]: min_tokens 0 does not exceed the bucket before"},
		{"bucket: long}", "bucket: short}", `router.uncached_isl_buckets[1]: the name "short" is empty or taken`},
		{"quantum: 4000", "quantum: 0", `router.policy_classes[0] "agents-short": quantum: 0 is not within 1..`},
		{"name: agents-long", "name: batch", `router.policy_classes[4] "batch": the name is empty or taken`},
		{"name: agents-long", "name: ''", `router.policy_classes[1] "": the name is empty or taken`},
		{"name: batch", "name: chat", `router.policy_classes[4] "chat": a family has that name`},
		{"policy_family: chat, cache_bucket: long, ", "", `family "chat" has 0 classes for bucket "long", want one`},
		{"policy_family: chat, cache_bucket: long", "policy_family: chat", `router.policy_classes[3] "chat-long": policy_family and cache_bucket go together`},
		{"cache_bucket: long", "cache_bucket: huge", `router.policy_classes[1] "agents-long": cache_bucket: no bucket is called "huge"`},
		{"queue_policy: wspt", "queue_policy: sjf", `router.policy_classes[1] "agents-long": queue_policy: "sjf" is unknown`},
		{"prefill_busy_threshold_frac: 0.5, ", "", `router.policy_classes[1] "agents-long": busy_worker_ratio: without prefill_busy_threshold`},
		{"prefill_busy_threshold_frac: 0.5", "prefill_busy_threshold_frac: -0.5", `router.policy_classes[1] "agents-long": prefill_busy_threshold_frac: -0.5 is not within`},
		{"busy_worker_ratio: 0.5", "busy_worker_ratio: 0", `router.policy_classes[1] "agents-long": busy_worker_ratio: 0 is not within`},
		{"request_queue_limit_per_worker: 0", "request_queue_limit_per_worker: -1", `router.policy_classes[2] "chat-short": request_queue_limit_per_worker: -1 is not within`},
	} {
		text := strings.Replace(agents, test.old, test.new, 1)
		if text == agents {
			t.Fatalf("%q does not occur", test.old)
		}
		_, err := New(queueSettings(t, text), Pool{Workers: 1, BlockSize: 16}, 1)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want %s", test.new, err, test.want)
		}
	}
}

// Whatever a queue's settings are, they are refused or can be worked with.
func FuzzQueueSettings(f *testing.F) {
	f.Add(agents, "chat", int64(5))
	f.Add("queue_threshold: 16\nqueue_policy: lcfs\nbusy_worker_ratio: .5", "", int64(0))
	f.Add("policy_classes: [{name: a, quantum: 1}]", "a", int64(1<<62))
	f.Add("policy_classes: [{name: a, quantum: 1, policy_family: b, cache_bucket: c}]\nuncached_isl_buckets: [{bucket: c}]\ndefault_policy_family: b", "b", int64(-1))
	f.Fuzz(func(t *testing.T, text, name string, uncached int64) {
		if len(text) > 4<<10 || strings.Count(text, "[")+strings.Count(text, "{") > 100 {
			t.Skip("more than a config may have")
		}
		s := Defaults("kv")
		if yaml.Unmarshal([]byte(text), &s) != nil {
			t.Skip("no settings")
		}
		r, err := New(s, Pool{Workers: 2, BlockSize: 16}, 1)
		if err != nil {
			return
		}
		if class := r.settings.class(name, max(uncached, 0)); class < 0 || class >= len(r.queue.classes) {
			t.Fatalf("class %d of %d", class, len(r.queue.classes))
		}
		for i := range 8 {
			r.Submit(0, unbound(Request{Input: int32(i) << 12, Class: name}))
		}
		r.Drain(1)
	})
}
