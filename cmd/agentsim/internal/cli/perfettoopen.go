package cli

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	perfettoUI = "https://ui.perfetto.dev"
	// perfettoAddress is the one local address that the content security policy of ui.perfetto.dev lets it fetch from.
	perfettoAddress = "127.0.0.1:9001"
	// shutdownGrace is how long the last answer may take to leave.
	shutdownGrace = 5 * time.Second
)

// bind takes the address to serve at.
func (c *perfettoCommand) bind() (net.Listener, error) {
	host, _, err := net.SplitHostPort(c.listen)
	if err != nil || !isLoopback(host) {
		return nil, usagef("--listen %s: want HOST:PORT that only this machine reaches", c.listen)
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return nil, fmt.Errorf("--open: %w; end what uses that port, or leave out --open and open the file at %s by hand", err, perfettoUI)
	}
	return listener, nil
}

// serve serves the file to ui.perfetto.dev until it was fetched or the context ends.
func (c *perfettoCommand) serve(ctx context.Context, g *Global, listener net.Listener) error {
	handler := newFileOnce(c.out)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(g.Stderr, "agentsim: ", 0)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	address := "http://" + listener.Addr().String() + handler.path
	if c.urlFile != "" {
		if err := writeFile(c.urlFile, []byte(address+"\n")); err != nil {
			return err
		}
	}
	fmt.Fprintf(g.Stdout, "%s/#!/?url=%s\n", perfettoUI, url.QueryEscape(address))
	fmt.Fprintln(g.Stderr, "open this link in a browser on this machine; waiting until the file was fetched (Ctrl-C ends it)")
	select {
	case <-ctx.Done():
	case <-handler.fetched:
	case err := <-failed:
		return fmt.Errorf("serving %s: %w", c.out, err)
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	return server.Shutdown(finish)
}

// fileOnce serves one file to ui.perfetto.dev.
type fileOnce struct {
	file, path string
	once       sync.Once
	fetched    chan struct{} // closed when a browser has all of the file
}

func newFileOnce(file string) *fileOnce {
	return &fileOnce{file: file, path: "/" + url.PathEscape(filepath.Base(file)), fetched: make(chan struct{})}
}

func (h *fileOnce) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", perfettoUI)
	header.Set("Access-Control-Allow-Private-Network", "true") // asked for by browsers when a public page reads from here
	header.Set("Cache-Control", "no-store")
	host, _, err := net.SplitHostPort(r.Host)
	switch {
	case err != nil || !isLoopback(host): // a name that somebody else made lead here
		http.Error(w, "ask for 127.0.0.1", http.StatusMisdirectedRequest)
		return
	case r.URL.EscapedPath() != h.path:
		http.NotFound(w, r)
		return
	case r.Method == http.MethodOptions:
		header.Set("Access-Control-Allow-Methods", "GET")
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	f, err := os.Open(h.file)
	if err != nil {
		http.Error(w, "the file is gone", http.StatusGone)
		return
	}
	defer f.Close()
	header.Set("Content-Type", "application/octet-stream")
	sent := &countingWriter{ResponseWriter: w}
	http.ServeContent(sent, r, "", time.Time{}, f)
	if info, err := f.Stat(); err == nil && r.Method == http.MethodGet && sent.bytes == info.Size() {
		h.once.Do(func() { close(h.fetched) })
	}
}

// countingWriter counts the bytes of an answer.
type countingWriter struct {
	http.ResponseWriter
	bytes int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}
