package accuracy

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tables are the kinds of tables of measurements, told apart by a column that only they have.
var tables = []struct {
	column string
	read   func(path string) ([]*Case, error)
}{
	{"silicon_ttft_ms", Serving},
	{"token_time", TokenSweep},
	{"Input Output Length", LatencySweep},
}

// workloads is the file by which a folder of an open-loop campaign is known.
const workloads = "workloads.json"

// Read reads the cases of a table or of all tables in a folder and its subfolders, in the order of their paths. What a file
// holds is told by its columns (see Serving, TokenSweep and LatencySweep), and an open-loop campaign by its workloads.json
// (see OpenLoop). Other files are passed over.
func Read(path string) ([]*Case, error) {
	var cases []*Case
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		var more []*Case
		if entry.Name() == workloads {
			more, err = OpenLoop(filepath.Dir(file), Repeating)
		} else if read := tableReader(file); read != nil {
			more, err = read(file)
		}
		cases = append(cases, more...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading measurements: %w", err)
	}
	return cases, nil
}

// tableReader is the reader for a CSV file, by its first line; nil for other files.
func tableReader(path string) func(string) ([]*Case, error) {
	f, err := os.Open(path)
	if err != nil || filepath.Ext(path) != ".csv" {
		return nil
	}
	defer f.Close()
	head, _ := bufio.NewReaderSize(f, 1<<16).ReadSlice('\n')
	columns := strings.Split(strings.TrimSpace(string(head)), ",")
	for _, t := range tables {
		if slices.Contains(columns, t.column) {
			return t.read
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
