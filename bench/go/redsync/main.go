// Redsync as a contender, with its own choice of pauses; only the number of tries is without end.
package main

import (
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"tenure/driver"
)

func main() { driver.Main(connect) }

func connect(urls []string, lease time.Duration) (driver.Locks, error) {
	var pools []redsyncredis.Pool
	for _, url := range urls {
		address, err := goredislib.ParseURL(url)
		if err != nil {
			return nil, err
		}
		pools = append(pools, goredis.NewPool(goredislib.NewClient(address)))
	}
	sync := redsync.New(pools...)
	return func(name string) driver.Lock {
		return redsyncLock{sync.NewMutex(name, redsync.WithTries(1<<30), redsync.WithExpiry(lease))}
	}, nil
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) Acquire() error { return l.mutex.Lock() }

func (l redsyncLock) Release() error {
	_, err := l.mutex.Unlock()
	return err
}
