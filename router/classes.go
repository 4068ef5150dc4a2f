package router

import (
	"fmt"
	"slices"
	"sort"
)

// Queue configures the queue before the workers; with no threshold requests never wait in it. Either the first keys
// make one class of all requests, or the last three, named as in Dynamo's router policy file, divide them.
type Queue struct {
	// Policy orders waiting requests of equal strict priority: fcfs, wspt (shortest uncached prompt first) or lcfs.
	Policy string `yaml:"queue_policy"`
	// Threshold and ThresholdTokens are the prefill load above which a worker is busy: a multiple of
	// max_num_batched_tokens, and tokens. 0 is none.
	Threshold       float64 `yaml:"queue_threshold"`
	ThresholdTokens int64   `yaml:"queue_threshold_tokens"`
	// BusyWorkerRatio is the share of workers that must be busy for requests to wait; 0 is all of them.
	BusyWorkerRatio float64 `yaml:"busy_worker_ratio"`

	// DefaultFamily is the family of requests that name neither a family nor a class.
	DefaultFamily string `yaml:"default_policy_family"`
	// Buckets divide each family by the uncached length of the prompt.
	Buckets []Bucket `yaml:"uncached_isl_buckets"`
	Classes []Class  `yaml:"policy_classes"`
}

// Bucket is the range of uncached prompt tokens from MinTokens to the next bucket's.
type Bucket struct {
	MinTokens int64  `yaml:"min_tokens"`
	Name      string `yaml:"bucket"`
}

// Class is a queue of its own: that of one family and bucket, or without these of the requests that name it. Limits
// and thresholds that are nil do not exist.
type Class struct {
	Name   string `yaml:"name"`
	Family string `yaml:"policy_family,omitempty"`
	Bucket string `yaml:"cache_bucket,omitempty"`
	Policy string `yaml:"queue_policy,omitempty"`
	// Quantum is the uncached prompt tokens that the class may dispatch in its turn.
	Quantum int64 `yaml:"quantum"`

	Threshold       *float64 `yaml:"prefill_busy_threshold_frac,omitempty"`
	ThresholdTokens *int64   `yaml:"prefill_busy_threshold,omitempty"`
	BusyWorkerRatio *float64 `yaml:"busy_worker_ratio,omitempty"`

	// The limits are per worker, on what waits already: the request that crosses one still enters.
	RequestLimit *int64 `yaml:"request_queue_limit_per_worker,omitempty"`
	TokenLimit   *int64 `yaml:"raw_isl_token_queue_limit_per_worker,omitempty"`
	CachedLimit  *int64 `yaml:"cached_token_queue_limit_per_worker,omitempty"`
}

// maxClasses bounds the classes and the buckets of a queue.
const maxClasses = 256

var queuePolicies = []string{"fcfs", "wspt", "lcfs"}

// check verifies the ranges, and that each family has a class for each bucket.
func (s *Queue) check() error {
	if s.Policy != "" && !slices.Contains(queuePolicies, s.Policy) {
		return fmt.Errorf("router.queue_policy: %q is unknown, want fcfs, wspt or lcfs", s.Policy)
	}
	err := checkNumbers(
		number{"router.queue_threshold", s.Threshold, 0, maxWeight},
		number{"router.queue_threshold_tokens", float64(s.ThresholdTokens), 0, maxTokens},
		number{"router.busy_worker_ratio", s.BusyWorkerRatio, 0, 1},
	)
	if err != nil {
		return err
	}
	threshold := s.Threshold > 0 || s.ThresholdTokens > 0
	switch {
	case s.BusyWorkerRatio > 0 && !threshold:
		return fmt.Errorf("router.busy_worker_ratio: without router.queue_threshold or queue_threshold_tokens no worker is ever busy")
	case len(s.Classes) == 0 && len(s.Buckets) == 0 && s.DefaultFamily == "":
		return nil
	case threshold:
		return fmt.Errorf("router.policy_classes: they have thresholds of their own; leave router.queue_threshold and queue_threshold_tokens out")
	case len(s.Classes) < 1 || len(s.Classes) > maxClasses || len(s.Buckets) > maxClasses:
		return fmt.Errorf("router.policy_classes: %d classes and %d buckets are not within 1..%d", len(s.Classes), len(s.Buckets), maxClasses)
	}
	if err := s.checkBuckets(); err != nil {
		return err
	}
	for i := range s.Classes {
		if err := s.checkClass(i); err != nil {
			return fmt.Errorf("router.policy_classes[%d] %q: %w", i, s.Classes[i].Name, err)
		}
	}
	return s.checkFamilies()
}

func (s *Queue) checkBuckets() error {
	for i, b := range s.Buckets {
		switch {
		case i == 0 && b.MinTokens != 0:
			return fmt.Errorf("router.uncached_isl_buckets[0]: min_tokens is %d, the first bucket begins at 0", b.MinTokens)
		case i > 0 && b.MinTokens <= s.Buckets[i-1].MinTokens:
			return fmt.Errorf("router.uncached_isl_buckets[%d]: min_tokens %d does not exceed the bucket before", i, b.MinTokens)
		case b.Name == "" || s.bucket(b.Name) != i:
			return fmt.Errorf("router.uncached_isl_buckets[%d]: the name %q is empty or taken", i, b.Name)
		}
	}
	return nil
}

func (s *Queue) checkClass(i int) error {
	c := &s.Classes[i]
	switch {
	case c.Name == "" || slices.IndexFunc(s.Classes, func(o Class) bool { return o.Name == c.Name }) != i:
		return fmt.Errorf("the name is empty or taken")
	case (c.Family == "") != (c.Bucket == ""):
		return fmt.Errorf("policy_family and cache_bucket go together")
	case c.Bucket != "" && s.bucket(c.Bucket) < 0:
		return fmt.Errorf("cache_bucket: no bucket is called %q", c.Bucket)
	case c.Family == "" && slices.ContainsFunc(s.Classes, func(o Class) bool { return o.Family == c.Name }):
		return fmt.Errorf("a family has that name")
	case c.Policy != "" && !slices.Contains(queuePolicies, c.Policy):
		return fmt.Errorf("queue_policy: %q is unknown, want fcfs, wspt or lcfs", c.Policy)
	case c.BusyWorkerRatio != nil && !c.queues():
		return fmt.Errorf("busy_worker_ratio: without prefill_busy_threshold or prefill_busy_threshold_frac no worker is ever busy")
	}
	list := []number{{"quantum", float64(c.Quantum), 1, 1 << 30}}
	if c.Threshold != nil {
		list = append(list, number{"prefill_busy_threshold_frac", *c.Threshold, 0, maxWeight})
	}
	if c.BusyWorkerRatio != nil {
		list = append(list, number{"busy_worker_ratio", *c.BusyWorkerRatio, 1e-6, 1})
	}
	for _, limit := range []struct {
		key   string
		value *int64
	}{
		{"prefill_busy_threshold", c.ThresholdTokens},
		{"request_queue_limit_per_worker", c.RequestLimit},
		{"raw_isl_token_queue_limit_per_worker", c.TokenLimit},
		{"cached_token_queue_limit_per_worker", c.CachedLimit},
	} {
		if limit.value != nil {
			list = append(list, number{limit.key, float64(*limit.value), 0, maxTokens})
		}
	}
	return checkNumbers(list...)
}

// checkFamilies verifies that every family has one class for each bucket, and that the default is one of them.
func (s *Queue) checkFamilies() error {
	found := false
	for _, c := range s.Classes {
		found = found || c.Family == s.DefaultFamily && c.Family != ""
		if c.Family == "" {
			continue
		}
		for _, b := range s.Buckets {
			n := 0
			for _, o := range s.Classes {
				if o.Family == c.Family && o.Bucket == b.Name {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("router.policy_classes: family %q has %d classes for bucket %q, want one", c.Family, n, b.Name)
			}
		}
	}
	if !found {
		return fmt.Errorf("router.default_policy_family: %q is no family of router.policy_classes", s.DefaultFamily)
	}
	return nil
}

func (s *Queue) bucket(name string) int {
	return slices.IndexFunc(s.Buckets, func(b Bucket) bool { return b.Name == name })
}

// classes returns the classes of the queue, one for all requests when none are configured.
func (s *Queue) classes() []Class {
	if len(s.Classes) > 0 {
		return s.Classes
	}
	all := Class{Name: "default", Policy: s.Policy, Quantum: 1}
	if s.Threshold > 0 {
		all.Threshold = &s.Threshold
	}
	if s.ThresholdTokens > 0 {
		all.ThresholdTokens = &s.ThresholdTokens
	}
	if s.BusyWorkerRatio > 0 {
		all.BusyWorkerRatio = &s.BusyWorkerRatio
	}
	return []Class{all}
}

// Waits tells whether any request can ever wait in the queue: whether it has a threshold.
func (s *Queue) Waits() bool {
	return slices.ContainsFunc(s.classes(), func(c Class) bool { return c.queues() })
}

// sized tells whether the class of a request that names the given family or class depends on its uncached length.
func (s *Queue) sized(name string) bool {
	return len(s.Buckets) > 0 && !slices.ContainsFunc(s.Classes, func(c Class) bool { return c.Family == "" && c.Name == name })
}

// class returns the index of the class of a request. A name that is unknown counts as none.
func (s *Queue) class(name string, uncached int64) int {
	if len(s.Classes) == 0 {
		return 0
	}
	family, bucket := s.DefaultFamily, ""
	for i, c := range s.Classes {
		if c.Family == "" && c.Name == name {
			return i
		}
		if c.Family == name && name != "" {
			family = name
		}
	}
	if above := sort.Search(len(s.Buckets), func(i int) bool { return s.Buckets[i].MinTokens > uncached }); above > 0 {
		bucket = s.Buckets[above-1].Name
	}
	return slices.IndexFunc(s.Classes, func(c Class) bool { return c.Family == family && c.Bucket == bucket })
}

// queues tells whether requests of the class ever wait.
func (c *Class) queues() bool { return c.Threshold != nil || c.ThresholdTokens != nil }

// busy tells whether a worker with so many tokens to prefill is busy, where a step takes batch tokens.
func (c *Class) busy(prefill, batch int64) bool {
	return c.ThresholdTokens != nil && prefill > *c.ThresholdTokens ||
		c.Threshold != nil && float64(prefill) > *c.Threshold*float64(batch)
}

// allBusy tells whether requests wait when so many of the workers are busy.
func (c *Class) allBusy(busy, workers int) bool {
	if c.BusyWorkerRatio == nil {
		return busy == workers
	}
	return float64(busy) >= *c.BusyWorkerRatio*float64(workers)
}
