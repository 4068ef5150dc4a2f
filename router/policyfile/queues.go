package policyfile

// Profile is the queues of a router. A request names a family, or a class that is of none; within a family its uncached
// tokens choose the bucket and with it the class.
type Profile struct {
	// DefaultFamily is the family of requests that name none, or one that is not known.
	DefaultFamily string
	// Buckets are in rising order of MinTokens, which begin at 0.
	Buckets []Bucket
	// Classes are in the order of the file. Each family has one for each bucket.
	Classes []Class
}

// Bucket is a range of a request's uncached tokens, up to the next bucket.
type Bucket struct {
	Name      string
	MinTokens int
}

// Class is one queue.
type Class struct {
	Name string
	// Family and Bucket are empty for a class that requests name themselves.
	Family, Bucket string
	// QueuePolicy orders the queue: fcfs, wspt or lcfs. Later versions of Dynamo no longer take lcfs.
	QueuePolicy string
	// Quantum is the uncached tokens that deficit round robin gives the class at each visit.
	Quantum int

	// A worker is busy with more prefill tokens than PrefillBusyThreshold, or than PrefillBusyThresholdFrac times its
	// tokens per step. Requests queue while the share BusyWorkerRatio of eligible workers is busy, nil being all; with
	// neither threshold they never queue.
	PrefillBusyThreshold     *int
	PrefillBusyThresholdFrac *float64
	BusyWorkerRatio          *float64

	// Limits on what is queued for each worker; nil is none.
	RequestQueueLimitPerWorker     *int
	RawISLTokenQueueLimitPerWorker *int
	CachedTokenQueueLimitPerWorker *int
}

// readModels reads the profiles of single models.
func readModels(top group) map[string]*Profile {
	models := map[string]*Profile{}
	g := top.group("models", anyKey)
	for _, name := range keys(g.values) {
		models[name] = readProfile(g.group(name, "default_policy_family", "uncached_isl_buckets", "policy_classes"))
	}
	return models
}

// readProfile reads the three keys of a profile, which come together.
func readProfile(g group) *Profile {
	p := &Profile{DefaultFamily: g.identifier("default_policy_family")}
	for _, b := range g.groups("uncached_isl_buckets", "min_tokens", "bucket") {
		bucket := Bucket{b.identifier("bucket"), b.whole("min_tokens", -1, 0, maxTokens)}
		switch n := len(p.Buckets); {
		case n == 0 && bucket.MinTokens != 0:
			b.fail("min_tokens", "the first bucket begins at %d, want 0", bucket.MinTokens)
		case n > 0 && bucket.MinTokens <= p.Buckets[n-1].MinTokens:
			b.fail("min_tokens", "%d, want more than the %d of the bucket before", bucket.MinTokens, p.Buckets[n-1].MinTokens)
		case p.bucket(bucket.Name):
			b.fail("bucket", "a second bucket %q", bucket.Name)
		}
		p.Buckets = append(p.Buckets, bucket)
	}
	for _, c := range g.groups("policy_classes", "name", "policy_family", "cache_bucket", "queue_policy", "quantum",
		"prefill_busy_threshold", "prefill_busy_threshold_frac", "busy_worker_ratio", "request_queue_limit_per_worker",
		"raw_isl_token_queue_limit_per_worker", "cached_token_queue_limit_per_worker") {
		class := readClass(c)
		p.checkPlace(c, class)
		p.Classes = append(p.Classes, class)
	}
	p.checkMatrix(g)
	return p
}

func readClass(c group) Class {
	class := Class{
		Name:        c.identifier("name"),
		QueuePolicy: c.oneOf("queue_policy", "fcfs", "fcfs", "wspt", "lcfs"),
		Quantum:     c.whole("quantum", 0, 1, maxTokens),

		PrefillBusyThreshold:     c.optionalWhole("prefill_busy_threshold", 0, maxTokens),
		PrefillBusyThresholdFrac: c.optionalNumber("prefill_busy_threshold_frac", 0, maxWeight),
		BusyWorkerRatio:          c.optionalNumber("busy_worker_ratio", least, 1),

		RequestQueueLimitPerWorker:     c.optionalWhole("request_queue_limit_per_worker", 0, maxTokens),
		RawISLTokenQueueLimitPerWorker: c.optionalWhole("raw_isl_token_queue_limit_per_worker", 0, maxTokens),
		CachedTokenQueueLimitPerWorker: c.optionalWhole("cached_token_queue_limit_per_worker", 0, maxTokens),
	}
	c.require("name", "quantum")
	if c.has("policy_family") || c.has("cache_bucket") {
		class.Family, class.Bucket = c.identifier("policy_family"), c.identifier("cache_bucket")
	}
	if class.BusyWorkerRatio != nil && class.PrefillBusyThreshold == nil && class.PrefillBusyThresholdFrac == nil {
		c.fail("busy_worker_ratio", "no worker is ever busy without prefill_busy_threshold or prefill_busy_threshold_frac")
	}
	return class
}

// checkPlace compares a class with the buckets and with the classes before it.
func (p *Profile) checkPlace(c group, class Class) {
	if class.Bucket != "" && !p.bucket(class.Bucket) {
		c.fail("cache_bucket", "%q is no bucket of uncached_isl_buckets", class.Bucket)
	}
	for _, other := range p.Classes {
		switch {
		case other.Name == class.Name:
			c.fail("name", "a second class %q", class.Name)
		case class.Family != "" && other.Family == class.Family && other.Bucket == class.Bucket:
			c.fail("cache_bucket", "family %q has a class for bucket %q already: %q", class.Family, class.Bucket, other.Name)
		}
	}
}

// checkMatrix verifies that a family is the default, that each has a class for every bucket, and that no class of none
// has the name of one.
func (p *Profile) checkMatrix(g group) {
	g.require("default_policy_family", "uncached_isl_buckets", "policy_classes")
	byFamily := map[string]int{}
	for _, c := range p.Classes {
		if c.Family != "" {
			byFamily[c.Family]++
		}
	}
	if byFamily[p.DefaultFamily] == 0 {
		g.fail("default_policy_family", "no class is of family %q", p.DefaultFamily)
	}
	for _, c := range p.Classes {
		switch {
		case c.Family == "" && byFamily[c.Name] > 0:
			g.fail("policy_classes", "class %q of no family has the name of a family", c.Name)
		case c.Family != "" && byFamily[c.Family] != len(p.Buckets):
			g.fail("policy_classes", "family %q has classes for %d of %d buckets, want all", c.Family, byFamily[c.Family], len(p.Buckets))
		}
	}
}

func (p *Profile) bucket(name string) bool {
	for _, b := range p.Buckets {
		if b.Name == name {
			return true
		}
	}
	return false
}
