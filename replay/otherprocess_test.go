package replay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim/server"
)

// serverVariable makes this test binary a server: "KIND ARGUMENT", "trivial" with the time between two tokens, or
// "simulated" with the address to listen on.
const serverVariable = "AGENTSIM_REPLAY_TEST_SERVER"

func TestMain(m *testing.M) {
	if what, ok := os.LookupEnv(serverVariable); ok {
		panic(beServer(what))
	}
	os.Exit(m.Run())
}

// beServer says where it listens, and answers until the process is killed.
func beServer(what string) error {
	kind, argument, _ := strings.Cut(what, " ")
	address, handler := "127.0.0.1:0", trivial(argument)
	if kind == "simulated" {
		p, err := deployment(1).Resolve()
		if err != nil {
			return err
		}
		s, err := server.New(p, server.Options{})
		if err != nil {
			return err
		}
		go s.Run(context.Background())
		address, handler = argument, s
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, handler)
}

// trivial answers every request with as many tokens as it asks for, without looking at the prompt.
func trivial(gap string) http.Handler {
	every, _ := time.ParseDuration(gap)
	event := []byte(`data: {"id":"c","object":"text_completion","model":"m","choices":[{"index":0,"text":" tok","finish_reason":null}]}` + "\n\n")
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		n := 0
		_, after, _ := strings.Cut(string(body[max(0, len(body)-300):]), `"max_tokens":`)
		fmt.Sscanf(after, "%d", &n)
		w.Header().Set("Content-Type", "text/event-stream")
		for range n {
			if every > 0 {
				time.Sleep(every)
			}
			w.Write(event)
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"+
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":16,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", n)
	})
}

// startServer runs a server in a process of its own, and returns its URL and how to kill it.
func startServer(t testing.TB, kind, argument string) (url string, kill func()) {
	t.Helper()
	url, kill, err := launch(kind, argument)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kill)
	return url, kill
}

func launch(kind, argument string) (url string, kill func(), err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"="+kind+" "+argument, "GOMAXPROCS=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	kill = func() { cmd.Process.Kill(); cmd.Wait() }
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		kill()
		return "", nil, fmt.Errorf("a server in a process of its own: %w", err)
	}
	return "http://" + strings.TrimSpace(addr), kill, nil
}
