// Does with redsync what it is told line by line: ACTOR take|try|give NAME [LEASE_MS]. Ends with its input.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var saying sync.Mutex

// Whole lines, whichever actor answers.
func say(line string) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(line)
}

// An actor's commands run in order, those of different actors at the same time.
type actor struct {
	name  string
	locks *redsync.Redsync
	held  map[string]*redsync.Mutex
	told  chan []string
}

func (a *actor) run() {
	for words := range a.told {
		value, err := a.obey(words)
		answer := strings.TrimSpace("ok " + value)
		if err != nil {
			answer = fmt.Sprintf("err %T: %s", err, strings.Join(strings.Fields(err.Error()), " "))
		}
		say(a.name + " " + answer)
	}
}

func (a *actor) obey(words []string) (string, error) {
	if len(words) < 2 {
		return "", errors.New("ACTOR VERB NAME ...")
	}
	verb, name := words[0], words[1]
	if verb == "give" {
		mutex := a.held[name]
		if mutex == nil {
			return "", errors.New("does not hold " + name)
		}
		delete(a.held, name)
		if ok, err := mutex.Unlock(); err != nil || !ok {
			return "", errors.Join(errors.New("not given back"), err)
		}
		return "", nil
	}
	if len(words) != 3 || verb != "take" && verb != "try" {
		return "", errors.New("no such command: " + strings.Join(words, " "))
	}
	lease, err := strconv.Atoi(words[2])
	if err != nil {
		return "", err
	}
	// It gives up after some tries; the tests' deadlines end sooner.
	patient := []redsync.Option{redsync.WithTries(10_000), redsync.WithRetryDelay(50 * time.Millisecond)}
	mutex := a.locks.NewMutex(name, append(patient, redsync.WithExpiry(time.Duration(lease)*time.Millisecond))...)
	if verb == "take" {
		a.held[name] = mutex
		return "", mutex.Lock()
	}
	var taken *redsync.ErrTaken
	if err := mutex.TryLock(); errors.As(err, &taken) {
		return "refused", nil
	} else if err != nil {
		return "", err
	}
	a.held[name] = mutex
	return "taken", nil
}

func main() {
	if len(os.Args) != 3 || os.Args[1] != "--single" {
		fmt.Fprintln(os.Stderr, "--single HOST:PORT")
		os.Exit(2)
	}
	client := redis.NewClient(&redis.Options{Addr: os.Args[2]})
	if err := client.Ping(context.Background()).Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say("ready")
	obey(redsync.New(goredis.NewPool(client)))
}

// Hands lines to their actors.
func obey(locks *redsync.Redsync) {
	actors := map[string]*actor{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		name := words[0]
		if len(words) == 2 && words[1] == "quit" {
			say(name + " ok")
			return
		}
		if actors[name] == nil {
			actors[name] = &actor{name, locks, map[string]*redsync.Mutex{}, make(chan []string, 100)}
			go actors[name].run()
		}
		actors[name].told <- words[1:]
	}
}
