package report

import (
	"encoding/json"
	"math"
	"testing"
)

func TestFigureJSON(t *testing.T) {
	type fields struct {
		F Figure `json:"f,omitzero"`
	}
	for _, test := range []struct {
		name string
		f    Figure
		want string
	}{
		{"unknown is absent", Figure{}, `{}`},
		{"a known 0 is printed", Known(0), `{"f":0}`},
		{"nine significant digits", Known(1.0 / 3), `{"f":0.333333333}`},
		{"the last digit is rounded", Known(123.4567896), `{"f":123.45679}`},
		{"noise below the ninth digit is hidden", Known(0.1 + 0.2), `{"f":0.3}`},
		{"whole numbers are exact", Known(int64(12_345_678_901)), `{"f":12345678901}`},
		{"no division by zero", ratio(1, 0), `{}`},
		{"no 0/0", ratio(0, 0), `{}`},
		{"None is unknown", Seconds(None), `{}`},
		{"NaN is unknown", Known(math.NaN()), `{}`},
	} {
		got, err := json.Marshal(fields{test.f})
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got %s, %v, want %s", test.name, got, err, test.want)
		}
		var back fields
		if err := json.Unmarshal(got, &back); err != nil || back.F.Known != test.f.Known {
			t.Errorf("%s: read back %+v, %v", test.name, back.F, err)
		}
	}
}

// TestFigureForPeople prints figures as pages show them. What is not known is not 0.
func TestFigureForPeople(t *testing.T) {
	for _, test := range []struct {
		figure             Figure
		text, share, clock string
	}{
		{Figure{}, "-", "-", "-"},
		{Known(0), "0", "0%", "0"},
		{Known(1e-6), "1.0e-06", "<0.1%", "1 µs"},
		{Known(0.0413), "0.041", "4.1%", "41.3 ms"},
		{Known(1.0), "1", "100%", "1 s"},
		{Known(12_345.6), "12.3k", "1234560%", "206 min"},
		{Known(30_240_000), "30.2M", "3024000000%", "350 d"},
	} {
		if text, share, clock := test.figure.String(), test.figure.Share(), test.figure.Time(); text != test.text || share != test.share || clock != test.clock {
			t.Errorf("%+v: %q, %q, %q, want %q, %q, %q", test.figure, text, share, clock, test.text, test.share, test.clock)
		}
	}
}
