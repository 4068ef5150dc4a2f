package perfetto

import (
	"bufio"
	"io"
	"strconv"
	"time"

	"github.com/goccy/go-json"
)

// chrome writes the JSON of Chrome's trace viewer ("Trace Event Format"), for viewers other than Perfetto. A group is a
// process there, and a row in it a thread; groups have no groups inside, so their names are paths. 64-bit ids are
// strings: browsers keep 53 bits of a number.
type chrome struct {
	w    *bufio.Writer // keeps the first error
	line []byte
	rows map[uint64]chromeRow
	pids int
}

// chromeRow is where the events of a track go.
type chromeRow struct {
	pid, tid int
	name     string // the path of a group, the name of a counter
}

// newChrome begins a file. Origin, if it is not "", says what time 0 is.
func newChrome(w io.Writer, origin string) *chrome {
	c := &chrome{w: bufio.NewWriterSize(w, 1<<16), rows: map[uint64]chromeRow{}}
	c.raw(`{"displayTimeUnit":"ms","otherData":{"origin":`)
	c.line = c.text(c.line[:0], origin)
	c.raw(string(c.line))
	c.raw("},\"traceEvents\":[\n")
	c.raw(`{"ph":"M","pid":0,"name":"process_name","args":{"name":"agentsim"}}`)
	return c
}

func (c *chrome) raw(s string) { c.w.WriteString(s) }

func (c *chrome) close() error {
	c.raw("\n]}\n")
	return c.w.Flush()
}

func (c *chrome) track(t *track) {
	parent := c.rows[t.parent]
	row := chromeRow{pid: parent.pid, tid: int(t.id), name: t.name}
	if t.group {
		c.pids++
		row.pid = c.pids
		if parent.name != "" {
			row.name = parent.name + " / " + t.name
		}
	}
	c.rows[t.id] = row
	switch {
	case t.group:
		c.meta(row, "process_name", row.name)
		c.order(row, "process_sort_index", row.pid)
		c.meta(row, "thread_name", "summary")
	case !t.counter:
		c.meta(row, "thread_name", t.name)
		c.order(row, "thread_sort_index", int(t.rank))
	}
}

// head begins an event: its phase and place.
func (c *chrome) head(ph string, row chromeRow) []byte {
	b := append(c.line[:0], ",\n{\"ph\":\""...)
	b = append(append(b, ph...), `","pid":`...)
	b = strconv.AppendInt(b, int64(row.pid), 10)
	return strconv.AppendInt(append(b, `,"tid":`...), int64(row.tid), 10)
}

func (c *chrome) write(b []byte) {
	c.w.Write(append(b, '}'))
	c.line = b
}

func (c *chrome) meta(row chromeRow, key, name string) {
	b := append(append(append(c.head("M", row), `,"name":"`...), key...), `","args":{"name":`...)
	c.write(append(c.text(b, name), '}'))
}

func (c *chrome) order(row chromeRow, key string, index int) {
	b := append(append(append(c.head("M", row), `,"name":"`...), key...), `","args":{"sort_index":`...)
	c.write(append(strconv.AppendInt(b, int64(index), 10), '}'))
}

// stamp appends a time, in µs with all digits.
func stamp(b []byte, at time.Duration) []byte {
	b = strconv.AppendInt(append(b, `,"ts":`...), int64(at/time.Microsecond), 10)
	if ns := at % time.Microsecond; ns > 0 {
		b = append(b, '.', byte('0'+ns/100), byte('0'+ns/10%10), byte('0'+ns%10))
	}
	return b
}

func (c *chrome) text(b []byte, s string) []byte {
	text, _ := json.MarshalWithOption(clean(s), json.DisableHTMLEscape()) // of a string there is no error
	return append(b, text...)
}

func (c *chrome) event(e *event) {
	row := c.rows[e.track]
	switch e.kind {
	case begin:
		c.write(c.label(stamp(c.head("B", row), e.at), e))
	case end:
		c.write(stamp(c.head("E", row), e.at))
	case instant:
		c.write(c.label(append(stamp(c.head("i", row), e.at), `,"s":"t"`...), e))
	case sample:
		b := append(stamp(c.head("C", row), e.at), `,"name":`...)
		b = append(c.text(b, row.name), `,"args":{"value":`...)
		c.write(append(strconv.AppendFloat(b, e.value, 'g', -1, 64), '}'))
	}
	for _, id := range e.ends {
		c.arrow("f", row, e.at, id)
	}
	for _, id := range e.starts {
		c.arrow("s", row, e.at, id)
	}
}

// arrow writes one end of an arrow. It belongs to the slice that is open on its row at the time.
func (c *chrome) arrow(ph string, row chromeRow, at time.Duration, id uint64) {
	b := append(stamp(c.head(ph, row), at), `,"bp":"e","cat":"flow","name":"flow","id":"`...)
	c.write(append(strconv.AppendUint(b, id, 10), '"'))
}

// label appends name, categories, colour and arguments.
func (c *chrome) label(b []byte, e *event) []byte {
	b = c.text(append(b, `,"name":`...), e.name)
	b = append(b, `,"cat":"`...)
	colour := ""
	for i, category := range e.categories {
		if category == "" {
			break
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, category...)
		switch category {
		case catError:
			colour = "terrible"
		case catCancelled:
			colour = "bad"
		}
	}
	b = append(b, '"')
	if colour != "" {
		b = append(append(append(b, `,"cname":"`...), colour...), '"')
	}
	if len(e.args) == 0 {
		return b
	}
	b = append(b, `,"args":{`...)
	for i := range e.args {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.value(append(c.text(b, e.args[i].key), ':'), &e.args[i])
	}
	return append(b, '}')
}

func (c *chrome) value(b []byte, a *arg) []byte {
	switch a.kind {
	case argNumber:
		return strconv.AppendInt(b, a.number, 10)
	case argReal:
		return strconv.AppendFloat(b, a.real, 'g', -1, 64)
	case argTrue:
		return append(b, "true"...)
	}
	return c.text(b, a.text)
}
