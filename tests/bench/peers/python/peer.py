"""The lock of redis-py: see the README of the parent folder."""

import json
import sys
import threading
import time

import redis

TTL = 30
# The sleep of a waiter between two attempts, in seconds.
SLEEPS = {"redis-py": 0.1, "redis-py-tuned": 0.001}


def main():
    port, side = sys.argv[1:]
    client = redis.Redis(port=int(port), max_connections=1_000)

    def lock(name):
        return client.lock(name, timeout=TTL, sleep=SLEEPS[side])

    lock("first")
    show({"ready": f"redis-py {redis.__version__}"})
    for line in sys.stdin:
        work, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if work == "pairs":
            show(pairs(lock, *numbers))
        elif work == "handoff":
            show(handoff(lock, *numbers))
        elif work == "drop":
            show({"held": 0})
        else:
            show({"cannot": "it neither renews by itself nor tells"})


def pairs(lock, callers, millis):
    counts = [0] * callers
    begin = time.monotonic()
    end = begin + millis / 1e3

    def caller(index):
        name = f"pairs/{index}"
        while time.monotonic() < end:
            own = lock(name)
            own.acquire()
            own.release()
            counts[index] += 1

    each(callers, caller)
    return {"count": sum(counts), "millis": (time.monotonic() - begin) * 1e3}


def handoff(lock, tasks, millis):
    counts = [0] * tasks
    end = time.monotonic() + millis / 1e3

    def task(index):
        while time.monotonic() < end:
            own = lock("handoff")
            own.acquire()
            counts[index] += time.monotonic() < end
            own.release()

    each(tasks, task)
    return {"count": sum(counts), "millis": millis, "least": min(counts), "most": max(counts)}


def each(count, work):
    threads = [threading.Thread(target=work, args=[index]) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def show(value):
    print(json.dumps(value), flush=True)


main()
