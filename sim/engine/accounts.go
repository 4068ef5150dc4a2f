package engine

import "github.com/agentsim/agentsim/sim/kvcache"

// Accounts is who holds how many KV blocks for how long; nil unless kvcache.Options ask for it. The growth of decodes is in it
// up to the last Close or Restart, or the end of the request.
func (e *Engine) Accounts() *kvcache.Accounts { return e.kv.Accounts }

// countGrowth accounts for what running requests have grown by up to the present step.
func (e *Engine) countGrowth() {
	if e.kv.Accounts == nil {
		return
	}
	for r := e.running.head; r != nil; r = r.next {
		e.kv.CountGrowth(&r.table)
	}
}

// beginSteps counts the steps in flight but for the first, of which their scheduling has told. For the accounts each counts
// at its beginning, which is a whole nanosecond: no formula for the sum over a leap would round so.
func (e *Engine) beginSteps() {
	if e.kv.Accounts == nil {
		e.kv.Step += e.steps - 1
		return
	}
	for done := int64(1); done < e.steps; done++ {
		e.kv.Begin(e.stepEnd(done))
	}
}

// checkAccounts verifies that the accounts add up to the blocks in use.
func (e *Engine) checkAccounts() error {
	if e.kv.Accounts == nil {
		return nil
	}
	used := e.kv.Used()
	for r := e.running.head; r != nil; r = r.next {
		used -= e.kv.Uncounted(&r.table)
	}
	return e.kv.Accounts.Check(used)
}
