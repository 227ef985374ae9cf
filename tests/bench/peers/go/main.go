// Locks in Go: see the README of the parent folder.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// atOnce is how many locks are acquired at a time when many are held.
const atOnce = 64

type reply map[string]any

func main() {
	side, err := connect(os.Args[1], os.Args[2])
	check(err)
	show(reply{"ready": side.version})
	var held []func()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		numbers := make([]int, len(words))
		for at, word := range words[1:] {
			numbers[at+1], err = strconv.Atoi(word)
			check(err)
		}
		switch words[0] {
		case "pairs":
			show(pairs(side, numbers[1], time.Duration(numbers[2])*time.Millisecond))
		case "handoff":
			show(handoff(side, numbers[1], time.Duration(numbers[2])*time.Millisecond))
		case "hold":
			if !side.renews {
				show(reply{"cannot": "it does not renew by itself"})
				continue
			}
			held = hold(side, numbers[1])
			show(reply{"held": len(held)})
		case "drop":
			for _, release := range held {
				release()
			}
			held = nil
			show(reply{"held": 0})
		case "watch":
			if !side.tells {
				show(reply{"cannot": "it does not tell"})
				continue
			}
			lost, _, err := side.acquire("watched")
			check(err)
			go func() {
				<-lost.Done()
				show(reply{"lost": true})
			}()
			show(reply{"held": 1})
		}
	}
}

func pairs(side *side, callers int, limit time.Duration) reply {
	var count atomic.Int64
	begin := time.Now()
	each(callers, func(caller int) {
		name := fmt.Sprintf("pairs/%d", caller)
		for time.Since(begin) < limit {
			_, release, err := side.acquire(name)
			check(err)
			release()
			count.Add(1)
		}
	})
	return reply{"count": count.Load(), "millis": millis(time.Since(begin))}
}

func handoff(side *side, tasks int, limit time.Duration) reply {
	counts := make([]int, tasks)
	begin := time.Now()
	each(tasks, func(task int) {
		for time.Since(begin) < limit {
			_, release, err := side.acquire("handoff")
			check(err)
			if time.Since(begin) < limit {
				counts[task]++
			}
			release()
		}
	})
	sum, least, most := 0, counts[0], counts[0]
	for _, count := range counts {
		sum, least, most = sum+count, min(least, count), max(most, count)
	}
	return reply{"count": sum, "millis": millis(limit), "least": least, "most": most}
}

func hold(side *side, count int) []func() {
	var held []func()
	var next atomic.Int64
	var mutex sync.Mutex
	each(atOnce, func(int) {
		for number := next.Add(1); number <= int64(count); number = next.Add(1) {
			_, release, err := side.acquire(fmt.Sprintf("held/%d", number))
			check(err)
			mutex.Lock()
			held = append(held, release)
			mutex.Unlock()
		}
	})
	return held
}

func each(count int, work func(int)) {
	var group sync.WaitGroup
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			work(number)
		}()
	}
	group.Wait()
}

func millis(time time.Duration) float64 {
	return float64(time.Microseconds()) / 1e3
}

func show(value reply) {
	text, err := json.Marshal(value)
	check(err)
	fmt.Println(string(text))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// done is a context without news of the lock.
var done = context.Background()
