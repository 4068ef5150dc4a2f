package router

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

// TestChoices: a router tells why each request goes where it goes, and what the workers would have cost before it was booked.
func TestChoices(t *testing.T) {
	s := Defaults("kv")
	s.SessionAffinity.Mode = "soft"
	r, err := New(s, Pool{Workers: 2, BlockSize: 10}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []Choice
	r.Observe(func(c Choice) { c.Request = nil; got = append(got, c) })
	path := []trace.Span{{Key: trace.MakeKey(1, 0), From: 0, To: 4}}
	r.Stored(0, 1, trace.Span{Key: path[0].Key, From: 0, To: 3})
	submit := func(session uint64, pinned, preferred int32) {
		r.Submit(time.Second, &Request{Session: session, Input: 40, PromptBlocks: 4, Path: path, Pinned: pinned, Preferred: preferred})
	}
	submit(1, -1, -1) // worker 1 holds 3 of 4 blocks: cost (4-3) + 4 against 4 + 4
	submit(1, -1, -1) // stays
	submit(2, -1, 0)
	submit(3, 0, -1)
	want := []Choice{
		{Worker: 1, Overlap: 3, Why: ByPolicy, Costed: true, Options: []Option{
			{Worker: 0, Cost: 8}, {Worker: 1, Overlap: 3, Cost: 5}}},
		// 1 block to prefill before it; its own blocks are held already.
		{Worker: 1, Overlap: 3, Why: SoftAffinity, Costed: true, Options: []Option{
			{Worker: 0, Cost: 8}, {Worker: 1, Overlap: 3, Requests: 1, PrefillTokens: 10, Cost: 6}}},
		{Worker: 0, Why: Preferred, Costed: true, Options: []Option{
			{Worker: 0, Cost: 8}, {Worker: 1, Overlap: 3, Requests: 2, PrefillTokens: 20, Cost: 7}}},
		{Worker: 0, Why: Pinned, Costed: true, Options: []Option{
			{Worker: 0, Requests: 1, PrefillTokens: 40, Cost: 12}, {Worker: 1, Overlap: 3, Requests: 2, PrefillTokens: 20, Cost: 7}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
