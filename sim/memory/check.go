package memory

import "fmt"

// Check verifies that no tier holds more than it can and no block twice, and that every load and save has what it waits for.
func (m *Memory) Check() error {
	open := 0
	for _, r := range m.ranks {
		for i := range r.tiers {
			if err := r.tiers[i].store.Check(); err != nil {
				return fmt.Errorf("worker %d, %s tier: %w", r.number, r.tiers[i].level, err)
			}
		}
		for _, l := range r.loads {
			if l.open < 1 {
				return fmt.Errorf("worker %d: a load of request %d waits for nothing", r.number, l.request.ID)
			}
			open += l.open
		}
		open += len(r.saves)
	}
	if open != len(m.moving) {
		return fmt.Errorf("%d transfers move, but loads and saves wait for %d", len(m.moving), open)
	}
	return nil
}
