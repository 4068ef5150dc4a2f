package report

// Price is what the work of a run costs when each hour of each of its GPUs costs GPUHour, in whatever currency that is: the
// GPU hours of the whole deployment over the measured time, idle ones too, over what was completed in it.
type Price struct {
	GPUHour float64 `json:"gpu_hour"`
	// ThousandTurns is per 1000 completed requests, Program per completed program.
	ThousandTurns Figure `json:"thousand_turns,omitzero"`
	Program       Figure `json:"program,omitzero"`
}

// SetPrice gives a run the price of its work. Where the number of GPUs is not known, as of a recording, it has none.
func (r *Run) SetPrice(gpuHour float64) {
	if r.GPUs <= 0 || r.Status == RunFailed {
		return
	}
	perHour := gpuHour * float64(r.GPUs)
	r.Price = &Price{GPUHour: gpuHour, ThousandTurns: ratio(1000*perHour, 60*r.Throughput.TurnsPerMin.Value),
		Program: ratio(perHour, r.Throughput.ProgramsPerHour.Value)}
}

// The prices as metrics.
var (
	turnsPrice = Metric{Name: "cost of 1000 turns", LowerIsBetter: true, of: func(r *Run) Figure {
		if r.Price == nil {
			return Figure{}
		}
		return r.Price.ThousandTurns
	}}
	programPrice = Metric{Name: "cost of a program", LowerIsBetter: true, of: func(r *Run) Figure {
		if r.Price == nil {
			return Figure{}
		}
		return r.Price.Program
	}}
)
