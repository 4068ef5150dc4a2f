package replay_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace/wire"
)

// Symptoms that other clients showed, by project and issue; more of them are in faults_test.go and in package client.

// connections makes a server count the connections over which requests come.
func connections(f *fake) *sync.Map {
	made := new(sync.Map)
	f.Hook = func(_ int, _ http.ResponseWriter, q *http.Request, _ *wire.Request) bool {
		made.Store(q.RemoteAddr, true)
		return false
	}
	return made
}

func count(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// A study of AIPerf: a limit on connections held 1,024 streams to 615, and nobody was told.
func TestNoHiddenLimitOnStreams(t *testing.T) {
	const streams = 600
	f := newFake(t)
	var mu sync.Mutex
	here, all := 0, make(chan struct{})
	f.Hook = func(_ int, _ http.ResponseWriter, q *http.Request, _ *wire.Request) bool {
		mu.Lock()
		if here++; here == streams {
			close(all)
		}
		mu.Unlock()
		select { // nobody is answered before all are here
		case <-all:
		case <-q.Context().Done():
		}
		return false
	}
	var turns []turn
	for i := range streams {
		turns = append(turns, turn{fmt.Sprint("s", i), "", 0, 1, 16, 1, nil})
	}
	if result, _ := run(t, compile(t, turns...), f, nil); result.Failed > 0 {
		t.Errorf("%d of %d streams failed", result.Failed, streams)
	}
}

// sglang PR 31543: a connection for each request exhausts the ports. vllm-omni#1374, AgentX FAQ: one that outlives the server's
// 5 s of keep-alive is reset.
func TestConnectionsAreReusedButNotForLong(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	made := connections(f)
	w := compile(t, turn{"a", "", 0, 1, 16, 1, nil}, turn{"a", "", 10, 11, 16, 1, nil}, turn{"a", "", 20, 21, 16, 1, nil})
	run(t, w, f, nil)
	if n := count(made); n != 1 {
		t.Errorf("%d connections for three requests, one after the other", n)
	}
	if testing.Short() {
		return
	}
	_, outcomes := run(t, compile(t, turn{"a", "", 0, 1, 16, 1, nil}, turn{"a", "", 4700, 4701, 16, 1, nil}), f, nil)
	if outcomes[1].Answer.Reused {
		t.Error("a connection that was idle for 4.7 s is used again: a server that closes it after 5 s may reset the request")
	}
}

// aiperf#867: times of two clocks that are read at different moments move a request by its whole setup. aiperf#1165 is of the
// same kind. A record lies at the beginning of the replay plus what the monotonic clock says.
func TestRecordsLieAtTheirTime(t *testing.T) {
	result, _ := run(t, family(t), newFake(t), nil)
	const begun = 1_700_000_000_000
	rows, requests := result.InOrder()
	i := 0
	for rec := range result.Dated(rows, sim.RequestRecords(result.Plan.Workload, 16, requests), begun) {
		row := rows[i]
		if got, want := *rec.Request.ReceivedMs, begun+row.Arrival.Milliseconds(); got != want {
			t.Errorf("request %d is received at %d, want %d", i, got, want)
		}
		x := rec.Request.Agentsim
		if *x.DueNs != int64(row.Due) || *x.ArrivalNs != int64(row.Arrival) || *x.ReadyNs != int64(row.Ready) {
			t.Errorf("request %d: %+v, want those of %+v", i, x, row)
		}
		i++
	}
	if i != 4 {
		t.Errorf("%d records of 4 requests", i)
	}
}

// dynamo#12883: one name for two figures. TPOT has a value for each request, ITL one for each gap.
func TestTPOTIsPerRequestAndITLPerGap(t *testing.T) {
	f := newFake(t)
	f.Gap = time.Millisecond
	w := compile(t, turn{"a", "", 0, 1, 16, 2, nil}, turn{"a", "", 30, 40, 16, 11, nil})
	result, _ := run(t, w, f, nil)
	if l := result.Report(replay.About{}).LatencyMs; l.TPOT.Count != 2 || l.ITL.Count != 11 {
		t.Errorf("%d values of TPOT, %d of ITL; want 2 and 1+10", l.TPOT.Count, l.ITL.Count)
	}
}

// guidellm#526: a long time between the start and the first request.
func TestTheFirstRequestDoesNotWait(t *testing.T) {
	_, outcomes := run(t, compile(t, turn{"a", "", 50_000, 50_001, 16, 1, nil}), newFake(t), func(s *setup) { s.plan.From = 50 * time.Second })
	if sent := outcomes[0].Answer.Sent; sent > 500*time.Millisecond {
		t.Errorf("the first request is sent after %v", sent)
	}
}

// How requests share connections, told by the number of connections that six requests make, one after the other in two sessions.
func TestConnectionsOfRequests(t *testing.T) {
	var turns []turn
	for i := range 3 {
		turns = append(turns, turn{"a", "", i * 40, i*40 + 1, 16, 1, nil}, turn{"b", "", i*40 + 20, i*40 + 21, 16, 1, nil})
	}
	for kind, want := range map[string]int{client.Pooled: 1, client.Fresh: 6, client.PerSession: 2} {
		f := newFake(t)
		made := connections(f)
		if result, _ := run(t, compile(t, turns...), f, func(s *setup) { s.client.Connections = kind }); count(made) != want || result.Failed > 0 {
			t.Errorf("%s: %d connections, %d requests failed; want %d and none", kind, count(made), result.Failed, want)
		}
	}
}

func TestHTTP2(t *testing.T) {
	for _, two := range []bool{true, false} {
		f := newFake(t)
		versions := map[int]int{}
		f.Hook = func(_ int, _ http.ResponseWriter, q *http.Request, _ *wire.Request) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			versions[q.ProtoMajor]++
			return false
		}
		s := httptest.NewUnstartedServer(f)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		result, _ := run(t, family(t), &fake{Server: s}, func(s *setup) { s.client.HTTP2 = two })
		s.Close()
		if want := map[bool]int{true: 2, false: 1}[two]; versions[want] != 4 || result.Failed > 0 {
			t.Errorf("HTTP/2 %v: requests by version %v, %d failed", two, versions, result.Failed)
		}
	}
}

// Spinning sends nothing early, and reads what has ended meanwhile.
func TestPreciseTiming(t *testing.T) {
	_, outcomes := run(t, compile(t, chain("a", 50, 5)...), newFake(t), func(s *setup) { s.options.Precise = true })
	for _, o := range outcomes {
		if o.Answer.Sent < o.Due || o.Answer.Err != nil {
			t.Errorf("%s is due at %v, sent at %v: %v", o.ID, o.Due, o.Answer.Sent, o.Answer.Err)
		}
	}
	if len(outcomes) != 50 {
		t.Errorf("%d outcomes of 50", len(outcomes))
	}
}
