package main

import "time"

// held returns, for each minute of the run, the tokens of programs by the worker they are on: from when a request goes
// there until the next of its session comes, or until its own end where that next one is held by the program scheduler
// or never comes.
func (o *outcome) held() [][]int64 {
	minutes := make([][]int64, o.run.End/time.Minute+1)
	for i := range minutes {
		minutes[i] = make([]int64, len(o.run.Engines))
	}
	stay := func(q int, until time.Duration) {
		r := &o.run.Requests[q]
		if r.Worker < 0 {
			return
		}
		from := r.Arrival + r.Held
		for m := (from + time.Minute - 1) / time.Minute; m*time.Minute < until && int(m) < len(minutes); m++ {
			minutes[m][r.Worker] += int64(r.Input + r.Output)
		}
	}
	type session struct {
		session int32
		copy    uint32
	}
	latest := map[session]int{}
	for i := range o.run.Requests {
		q := &o.run.Requests[i]
		of := session{q.Session, q.Copy}
		if before, ok := latest[of]; ok {
			until := q.Arrival
			if q.Held > 0 {
				until = o.run.Requests[before].End
			}
			stay(before, until)
		}
		latest[of] = i
	}
	for _, q := range latest { // sums of integers: any order
		until := o.run.Requests[q].End
		if until < 0 {
			until = o.run.End
		}
		stay(q, until)
	}
	return minutes
}

// apart says how far apart two workers are in the tokens of their programs: the share of minutes in which the fuller one has
// over 20 % more than the other, and the greatest difference as a share of the fuller one.
func (o *outcome) apart() (often, most float64) {
	minutes, far := 0, 0
	for at, m := range o.held() {
		if !o.run.Window.Contains(time.Duration(at) * time.Minute) {
			continue
		}
		low, high := float64(min(m[0], m[1])), float64(max(m[0], m[1]))
		if high == 0 {
			continue
		}
		minutes++
		if high-low > 0.2*high {
			far++
		}
		most = max(most, (high-low)/high)
	}
	return float64(far) / float64(minutes), most
}

// workingSet is the mean tokens of live programs in the measured window, as a share of all KV capacity.
func (o *outcome) workingSet() float64 {
	var sum, minutes int64
	for m, on := range o.held() {
		if !o.run.Window.Contains(time.Duration(m) * time.Minute) {
			continue
		}
		minutes++
		for _, tokens := range on {
			sum += tokens
		}
	}
	return float64(sum) / float64(minutes) / o.figures.KV.CapacityTokens.Value
}
