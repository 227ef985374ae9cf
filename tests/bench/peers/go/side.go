package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const ttl = 30 * time.Second

// A side is one of the locks. The context that acquire returns ends with the tenure, if the side reports losses.
type side struct {
	version string
	renews  bool
	tells   bool
	acquire func(name string) (context.Context, func(), error)
}

func connect(ports, name string) (*side, error) {
	var addresses []string
	for _, port := range strings.Split(ports, ",") {
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	// Only redsync knows several independent servers.
	address := addresses[0]
	switch name {
	case "rueidislock":
		return rueidisLock(address, rueidislock.LockerOption{})
	case "rueidislock-one-key":
		// For one server. Without NoLoopTracking, which is faster without waiters: with it, acquisitions wait until
		// locks that this process has released have expired.
		return rueidisLock(address, rueidislock.LockerOption{KeyMajority: 1})
	case "redsync":
		return redSync(addresses), nil
	case "redsync-tuned":
		return redSync(addresses, redsync.WithRetryDelay(time.Millisecond)), nil
	case "redislock":
		// Without a retry strategy it would not wait at all.
		return redisLock(address, 100*time.Millisecond), nil
	case "redislock-tuned":
		return redisLock(address, time.Millisecond), nil
	}
	return nil, fmt.Errorf("there is no side %q", name)
}

func rueidisLock(address string, options rueidislock.LockerOption) (*side, error) {
	options.ClientOption = rueidis.ClientOption{InitAddress: []string{address}}
	locker, err := rueidislock.NewLocker(options)
	if err != nil {
		return nil, err
	}
	acquire := func(name string) (context.Context, func(), error) {
		lost, release, err := locker.WithContext(done, name)
		return lost, release, err
	}
	return &side{version("github.com/redis/rueidis"), true, true, acquire}, nil
}

func redSync(addresses []string, options ...redsync.Option) *side {
	var pools []redis.Pool
	for _, address := range addresses {
		client := goredis9.NewClient(&goredis9.Options{Addr: address})
		pools = append(pools, goredis.NewPool(client))
	}
	sync := redsync.New(pools...)
	// By default it gives up after 32 tries, which is not what is compared.
	options = append([]redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(1_000_000)}, options...)
	acquire := func(name string) (context.Context, func(), error) {
		mutex := sync.NewMutex(name, options...)
		release := func() {
			_, err := mutex.Unlock()
			check(err)
		}
		return done, release, mutex.Lock()
	}
	return &side{version("github.com/go-redsync/redsync/v4"), false, false, acquire}
}

func redisLock(address string, wait time.Duration) *side {
	client := redislock.New(goredis9.NewClient(&goredis9.Options{Addr: address}))
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(wait)}
	acquire := func(name string) (context.Context, func(), error) {
		lock, err := client.Obtain(done, name, ttl, options)
		return done, func() { check(lock.Release(done)) }, err
	}
	return &side{version("github.com/bsm/redislock"), false, false, acquire}
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return module[len("github.com/"):] + " " + dependency.Version
		}
	}
	return module
}
