package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentsim/agentsim/cmd/agentsim/internal/cli"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"agentsim": func() {
			g := cli.FromProcess()
			g.Width, g.Terminal = 100, false
			os.Exit(cli.Main(g))
		},
	})
}

// TestScripts runs the command line as users do. Each script has the files of testdata/traces in its folder; fixed.yaml
// among them is a deployment whose step times are round numbers, so that the tables can be worked out by hand.
//
// Besides testscript's own commands there are
//
//	exits CODE[,CODE] agentsim ...  run a command that must end with an exit code, or one of several
//	refuses PATTERN agentsim ...    run a command that must be refused; see refuses
//	json FILE PATH VALUE            compare one value of a JSON file, such as runs.0.requests.total 5
//	same FILE FILE PATH...          compare values of two JSON files
//	gunzip FILE                     decompress a file to stdout
//	certificate CERT KEY            make a certificate for 127.0.0.1 and its key
//	geturl VARIABLE URLFILE         set a variable to the URL that a server of the script wrote
//	http STATUS URLFILE PATH [BODY] [NAME:VALUE]...
//	                                wait for a server that writes its URL to a file, and send a request with headers; the
//	                                answer is stdout
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		ContinueOnError:     true,
		Deadline:            time.Now().Add(8 * time.Minute), // for all together: none hangs
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // or each command takes a second more with the race detector
			return os.CopyFS(env.WorkDir, os.DirFS("testdata/traces"))
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "refuses": refuses, "json": jsonValue, "same": same, "http": httpRequest, "geturl": getURL, "gunzip": gunzip,
			"certificate": certificate,
		},
	})
}

// gunzip prints a gzip file.
func gunzip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gunzip FILE")
	}
	r, err := gzip.NewReader(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	_, err = io.Copy(ts.Stdout(), r)
	ts.Check(err)
}

// certificate makes a certificate for servers on this machine, which vouches for itself.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: certificate CERT KEY")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

// getURL sets a variable to the URL that a server of the script wrote into a file.
func getURL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: geturl VARIABLE URLFILE")
	}
	ts.Setenv(args[0], readURL(ts, args[1]))
}

// readURL waits until a server has written its URL.
func readURL(ts *testscript.TestScript, name string) string {
	file := ts.MkAbs(name)
	for range 500 {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return strings.TrimSpace(ts.ReadFile(name))
}

// httpRequest sends one request to a server of the script. Without a body it is a GET.
func httpRequest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: http STATUS URLFILE PATH [BODY] [NAME:VALUE]...")
	}
	url := readURL(ts, args[1]) + args[2]
	req, err := http.NewRequest("GET", url, nil)
	if len(args) > 3 {
		req, err = http.NewRequest("POST", url, strings.NewReader(args[3]))
	}
	ts.Check(err)
	for _, header := range args[min(len(args), 4):] {
		name, value, _ := strings.Cut(header, ":")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if got := strconv.Itoa(resp.StatusCode); got != args[0] {
		ts.Fatalf("status %s, want %s", got, args[0])
	}
}

// exits runs a command and compares its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE[,CODE] COMMAND ARGS...")
	}
	if got := run(ts, args[1:]); !slices.Contains(strings.Split(args[0], ","), strconv.Itoa(got)) {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// refuses runs a command that must end with exit code 2, say why on the last line of stderr, which is one line that
// matches the pattern and begins with the program's name, print no result, and leave nothing in the folder "out".
func refuses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refuses PATTERN COMMAND ARGS...")
	}
	pattern, err := regexp.Compile("^agentsim: .*" + args[0])
	ts.Check(err)
	if got := run(ts, args[1:]); got != 2 {
		ts.Fatalf("exit code %d, want 2", got)
	}
	said := strings.Split(strings.TrimSuffix(ts.ReadFile("stderr"), "\n"), "\n")
	if reason := said[len(said)-1]; !pattern.MatchString(reason) {
		ts.Fatalf("the last line of stderr is %q, want %s", reason, pattern)
	}
	for _, line := range said[:len(said)-1] {
		if strings.HasPrefix(line, "agentsim: ") || strings.HasPrefix(line, "goroutine ") {
			ts.Fatalf("more than one line of reasons: %q", line)
		}
	}
	if text := ts.ReadFile("stdout"); text != "" {
		ts.Fatalf("printed a result: %q", text)
	}
	if left, err := os.ReadDir(ts.MkAbs("out")); err == nil && len(left) > 0 {
		ts.Fatalf("left %s in the output folder", left[0].Name())
	}
}

// run runs a command and returns its exit code.
func run(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

// jsonValue compares a value of a JSON file with a JSON text.
func jsonValue(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: [!] json FILE PATH VALUE")
	}
	var want any
	if err := json.Unmarshal([]byte(args[2]), &want); err != nil {
		want = args[2]
	}
	got := lookUp(ts, args[0], args[1])
	if reflect.DeepEqual(got, want) == neg {
		ts.Fatalf("%s of %s is %v", args[1], args[0], got)
	}
}

// same compares values of two JSON files.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: [!] same FILE FILE PATH...")
	}
	for _, path := range args[2:] {
		a, b := lookUp(ts, args[0], path), lookUp(ts, args[1], path)
		if reflect.DeepEqual(a, b) == neg {
			ts.Fatalf("%s: %v in %s, %v in %s", path, a, args[0], b, args[1])
		}
	}
}

// lookUp returns the value at a path of keys and indices in a JSON file. A value that is not there is an error: a
// misspelt path must not compare equal.
func lookUp(ts *testscript.TestScript, file, path string) any {
	var value any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &value))
	for _, key := range strings.Split(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				ts.Fatalf("%s: no element %q at %s", file, key, path)
			}
			value = v[i]
		default:
			value = nil
		}
		if value == nil {
			ts.Fatalf("%s: nothing at %s (from %q on)", file, path, key)
		}
	}
	return value
}
