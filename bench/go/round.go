package driver

import (
	"math/bits"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	apart = iota
	one
)

// patience is how long a task may wait after the end before it counts as stuck.
const patience = 12 * time.Second

// now is CLOCK_MONOTONIC, which all processes share.
func now() int64 {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	return at.Nano()
}

func cpu() float64 {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e3
}

// counts of durations: the power of two, and 32 steps within it.
type counts [64 * 32]atomic.Int64

func (c *counts) add(nanos int64) {
	least := uint64(max(nanos, 32))
	power := bits.Len64(least) - 1
	c[power*32+int(least>>(power-5))-32].Add(1)
}

func (c *counts) total() map[int]int64 {
	found := map[int]int64{}
	for i := range c {
		if n := c[i].Load(); n > 0 {
			found[i] = n
		}
	}
	return found
}

// check sees whether holders exclude each other, and how long a hand-over takes. Holders leave a note inside: who is inside, when
// the last one left, its token, who it was.
type check struct {
	rule            int
	words           *[4]atomic.Int64
	first, tasks    int64
	intruders       atomic.Int64
	handed, crossed counts
}

func ruleOf(given Options) int {
	if given["names"] == "one" {
		return one
	}
	return apart
}

func newCheck(given Options, rule int) *check {
	tasks := int64(given.number("tasks", 1))
	c := &check{rule: rule, tasks: tasks, first: tasks * int64(given.number("process", 0)), words: &[4]atomic.Int64{}}
	path := given["check"]
	if path == "" {
		return c
	}
	file, err := unix.Open(path, unix.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer unix.Close(file)
	place, err := unix.Mmap(file, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	c.words = (*[4]atomic.Int64)(unsafe.Pointer(&place[0]))
	return c
}

func (c *check) enter(task int, granted int64) {
	if c.rule == apart {
		return
	}
	me, inside, last := c.first+int64(task)+1, c.words[0].Load(), c.words[3].Load()
	if inside != 0 {
		c.intruders.Add(1)
	}
	c.words[0].Store(me)
	if last == 0 || last == me || inside != 0 {
		return
	}
	if c.first < last && last <= c.first+c.tasks {
		c.handed.add(granted - c.words[1].Load())
	} else {
		c.crossed.add(granted - c.words[1].Load())
	}
}

func (c *check) leave(task int) {
	if c.rule == apart {
		return
	}
	c.words[1].Store(now())
	c.words[3].Store(c.first + int64(task) + 1)
	c.words[0].Store(0)
}

// round is one of them, as all tasks see it.
type round struct {
	options              Options
	check                *check
	start, until, cycles int64
	section              int64
	waits                counts
	tasks                []progress
	ended                chan error
	cpu                  float64
}

type progress struct{ inTime, total, longest, waitsSince atomic.Int64 }

func newRound(given Options, c *check, start, end, cycles int64) *round {
	tasks := given.number("tasks", 1)
	return &round{
		options: given, check: c, start: start, until: end, cycles: cycles, section: int64(given.number("section-us", 0)) * 1000,
		tasks: make([]progress, tasks), ended: make(chan error, tasks), cpu: cpu(),
	}
}

func (r *round) begin(locks Locks, number int64) {
	for task := range r.tasks {
		l := locks(r.options.name(number, task))
		go func() {
			time.Sleep(time.Duration(r.start - now()))
			r.ended <- r.run(task, l)
		}()
	}
}

func (r *round) run(task int, l Lock) error {
	p := &r.tasks[task]
	before := now()
	for done := int64(0); before < r.until && done < r.cycles; {
		p.waitsSince.Store(before)
		if err := l.Acquire(); err != nil {
			return err
		}
		granted := now()
		p.waitsSince.Store(0)
		r.waits.add(granted - before)
		p.longest.Store(max(p.longest.Load(), granted-before))
		r.check.enter(task, granted)
		for r.section > 0 && now() < granted+r.section {
		}
		r.check.leave(task)
		if err := l.Release(); err != nil {
			return err
		}
		before = now()
		done++
		p.total.Store(done)
		if before <= r.until {
			p.inTime.Store(done)
		}
	}
	return nil
}

// join waits for all tasks, or says how many are stuck.
func (r *round) join(limit <-chan time.Time) (stuck int, err error) {
	for missing := len(r.tasks); missing > 0; missing-- {
		select {
		case err := <-r.ended:
			if err != nil {
				return 0, err
			}
		case <-limit:
			return missing, nil
		}
	}
	return 0, nil
}

// end waits for all tasks, and says what was done.
func (r *round) end() (map[string]any, error) {
	stuck, err := r.join(time.After(time.Duration(r.until-now()) + patience))
	if err != nil {
		return nil, err
	}
	used := cpu() - r.cpu
	var inTime, total, longest int64
	each := make([]int64, len(r.tasks))
	for i := range r.tasks {
		p := &r.tasks[i]
		each[i] = p.inTime.Load()
		inTime += each[i]
		total += p.total.Load()
		longest = max(longest, p.longest.Load())
		if since := p.waitsSince.Load(); since != 0 {
			longest = max(longest, now()-since)
		}
	}
	return map[string]any{
		"cycles": inTime, "total": total, "tasks": each, "waits": r.waits.total(), "longest_wait_us": float64(longest) / 1e3,
		"handed": r.check.handed.total(), "crossed": r.check.crossed.total(), "intruders": r.check.intruders.Load(),
		"stuck": stuck, "cpu_us": used,
	}, nil
}
