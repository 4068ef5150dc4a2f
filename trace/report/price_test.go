package report

import "testing"

// TestPrice: four GPUs at 3 an hour cost 12 an hour. With 20 turns a minute, 1200 an hour, 1000 of them cost 10; each of 24
// programs an hour costs 0.5.
func TestPrice(t *testing.T) {
	r := &Run{GPUs: 4, Status: RunDone}
	r.Throughput = Throughput{TurnsPerMin: Known(20), ProgramsPerHour: Known(24)}
	r.SetPrice(3)
	if want := (Price{GPUHour: 3, ThousandTurns: Known(10), Program: Known(0.5)}); r.Price == nil || *r.Price != want {
		t.Errorf("got %+v, want %+v", r.Price, want)
	}

	for name, r := range map[string]*Run{
		"nothing was completed": {GPUs: 4, Status: RunDone, Measures: Measures{Throughput: Throughput{TurnsPerMin: Known(0), ProgramsPerHour: Known(0)}}},
		"no times are known":    {GPUs: 4, Status: RunDone},
	} {
		if r.SetPrice(3); r.Price == nil || r.Price.ThousandTurns.Known || r.Price.Program.Known {
			t.Errorf("%s: %+v, want no costs", name, r.Price)
		}
	}
	for name, r := range map[string]*Run{"a recording": {Status: RunDone}, "a run that failed": {GPUs: 4, Status: RunFailed}} {
		if r.SetPrice(3); r.Price != nil {
			t.Errorf("%s has the price %+v", name, r.Price)
		}
	}
}
