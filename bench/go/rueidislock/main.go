// Rueidislock as a contender.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"tenure/driver"
)

func main() { driver.Main(connect) }

func connect(urls []string, lease time.Duration) (driver.Locks, error) {
	if len(urls) > 1 {
		return nil, errors.New("talks to one server or cluster")
	}
	address, err := rueidis.ParseURL(urls[0])
	if err != nil {
		return nil, err
	}
	// One key for each lock, and tracking as its documentation says for Redis 7.0.5 and later.
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: address, KeyMajority: 1, NoLoopTracking: true, KeyValidity: lease,
	})
	if err != nil {
		return nil, err
	}
	return func(name string) driver.Lock { return &rueidisLock{locker: locker, name: name} }, nil
}

type rueidisLock struct {
	locker rueidislock.Locker
	name   string
	cancel context.CancelFunc
}

func (l *rueidisLock) Acquire() error {
	_, cancel, err := l.locker.WithContext(context.Background(), l.name)
	l.cancel = cancel
	return err
}

func (l *rueidisLock) Release() error {
	l.cancel()
	return nil
}
