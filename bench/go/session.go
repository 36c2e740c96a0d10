// Package driver is a contender without its library: says `ready`, runs a round for every `go` on its input, and prints one line
// for each.
package driver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const takers = 64

// Options are those that every driver takes, in every language.
type Options map[string]string

func readOptions(args []string) Options {
	given := Options{}
	for i := 0; i+1 < len(args); i += 2 {
		given[strings.TrimPrefix(args[i], "--")] = args[i+1]
	}
	return given
}

func (o Options) text(name, otherwise string) string {
	if value, ok := o[name]; ok {
		return value
	}
	return otherwise
}

func (o Options) number(name string, otherwise int) int {
	value, err := strconv.Atoi(o.text(name, ""))
	if err != nil {
		return otherwise
	}
	return value
}

func (o Options) nanos(name string) int64 {
	value, _ := strconv.ParseFloat(o.text(name, "0"), 64)
	return int64(value * 1e9)
}

// name is the same in all processes where all want one.
func (o Options) name(round int64, task int) string {
	name := fmt.Sprintf("bench:%s:%d", o["contender"], round)
	if o["names"] == "one" {
		return name
	}
	return fmt.Sprintf("%s:%d:%d", name, o.number("process", 0), task)
}

func say(line any) {
	if word, ok := line.(string); ok {
		fmt.Println(word)
		return
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

// Lock is one of one name, as one task has it.
type Lock interface {
	Acquire() error
	Release() error
}

// Locks makes them.
type Locks func(name string) Lock

type session struct {
	options Options
	locks   func(name string) Lock
	gate    Lock
	orders  *bufio.Scanner
}

// Main is the whole program, once it is known how to connect to the servers of these URLs for locks with this lease.
func Main(connect func(urls []string, lease time.Duration) (Locks, error)) {
	given := readOptions(os.Args[1:])
	locks, err := open(given, connect)
	if err != nil {
		say(map[string]string{"unsupported": err.Error()})
		os.Exit(1)
	}
	s := &session{options: given, locks: locks, orders: bufio.NewScanner(os.Stdin)}
	if given["scenario"] == "cycles" {
		r := newRound(given, newCheck(given, apart), now(), now()+given.nanos("warmup"), 1<<62)
		r.begin(s.locks, 0)
		r.end()
	}
	say("ready")
	for s.orders.Scan() {
		words := strings.Fields(s.orders.Text())
		if len(words) < 2 {
			continue
		}
		round, _ := strconv.ParseInt(words[1], 10, 64)
		switch words[0] {
		case "gate":
			s.gate = s.locks(given.name(round, 0))
			if err := s.gate.Acquire(); err != nil {
				say(map[string]string{"error": err.Error()})
				continue
			}
			say("gated")
		case "go":
			start, _ := strconv.ParseInt(words[2], 10, 64)
			outcome, err := s.run(round, start)
			if err != nil {
				outcome = map[string]any{"error": err.Error()}
			}
			say(outcome)
		}
	}
}

func open(given Options, connect func([]string, time.Duration) (Locks, error)) (Locks, error) {
	if mode := given.text("mode", "mutex"); mode != "mutex" {
		return nil, errors.New("has no " + mode)
	}
	lease := time.Duration(given.number("lease-ms", 30000)) * time.Millisecond
	return connect(strings.Split(given["url"], ","), lease)
}

func (s *session) run(number, start int64) (map[string]any, error) {
	switch s.options["scenario"] {
	case "drain":
		return s.drain(number, start)
	case "hold":
		return s.hold(number)
	case "crash":
		next := s.locks(s.options.name(number, 0))
		if err := next.Acquire(); err != nil {
			return nil, err
		}
		granted := now()
		return map[string]any{"cycles": 1, "total": 1, "granted_ns": granted}, next.Release()
	}
	r := newRound(s.options, newCheck(s.options, ruleOf(s.options)), start, start+s.options.nanos("seconds"), 1<<62)
	r.begin(s.locks, number)
	return r.end()
}

func (s *session) awaitRelease() {
	for s.orders.Scan() && s.orders.Text() != "release" {
	}
}

func (s *session) drain(number, start int64) (map[string]any, error) {
	r := newRound(s.options, newCheck(s.options, ruleOf(s.options)), start, start+s.options.nanos("seconds"), 1)
	r.begin(s.locks, number)
	time.Sleep(time.Duration(start-now()) + time.Second)
	say("waiting")
	s.awaitRelease()
	r.cpu = cpu()
	opened := now()
	if s.gate != nil {
		if err := s.gate.Release(); err != nil {
			return nil, err
		}
		s.gate = nil
	}
	outcome, err := r.end()
	if err == nil {
		outcome["took_us"] = float64(now()-opened) / 1e3
	}
	return outcome, err
}

func (s *session) hold(number int64) (map[string]any, error) {
	holds := s.options.number("holds", 1000)
	memory, began := residentKib(), now()
	held := make([]Lock, holds)
	var wait sync.WaitGroup
	var failed error
	for taker := range takers {
		wait.Go(func() {
			for n := taker; n < holds; n += takers {
				held[n] = s.locks(fmt.Sprintf("%s:%d", s.options.name(number, 0), n))
				if err := held[n].Acquire(); err != nil {
					failed = err
					return
				}
			}
		})
	}
	wait.Wait()
	if failed != nil {
		return nil, failed
	}
	took, grown := float64(now()-began)/1e3, residentKib()-memory
	say("waiting")
	before := cpu()
	s.awaitRelease()
	used := cpu() - before
	return map[string]any{"cycles": holds, "total": holds, "took_us": took, "grown_kib": grown, "cpu_us": used}, nil
}

// residentKib is the memory of this process that is not on disk.
func residentKib() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib
		}
	}
	return 0
}
