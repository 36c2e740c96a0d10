"""redis-py's Lock (asyncio) as a contender: says `ready`, runs a round for every `go` on its input, and prints one line for each."""

import asyncio
import json
import mmap
import struct
import sys
import time
from collections import Counter

from redis.asyncio import Redis

PATIENCE = 12
options = {name[2:]: value for name, value in zip(sys.argv[1::2], sys.argv[2::2])}
tasks = int(options.get("tasks", 1))
process = int(options.get("process", 0))
lease = int(options.get("lease-ms", 30000)) / 1000
section = int(options.get("section-us", 0)) * 1000
one_name = options.get("names") == "one"
scenario = options.get("scenario", "cycles")
now = time.monotonic_ns


def say(line):
    print(line if isinstance(line, str) else json.dumps(line), flush=True)


def name_of(number, task):
    """The same in all processes where all want one name."""
    name = f"bench:{options['contender']}:{number}"
    return name if one_name else f"{name}:{process}:{task}"


class Counts(Counter):
    """Counts of durations: the power of two, and 32 steps within it."""

    def add(self, nanos):
        nanos = max(nanos, 32)
        power = nanos.bit_length() - 1
        self[power * 32 + (nanos >> (power - 5)) - 32] += 1


class Check:
    """Whether holders exclude each other, and how long a hand-over takes. Holders leave a note inside: who is inside, when the last
    one left, its token, who it was."""

    words = struct.Struct("<4Q")

    def __init__(self):
        self.first, self.intruders, self.handed, self.crossed = process * tasks, 0, Counts(), Counts()
        if "check" in options:
            with open(options["check"], "r+b") as file:
                self.place = mmap.mmap(file.fileno(), 4096)
        else:
            self.place = bytearray(4096)

    def enter(self, task, granted):
        me = self.first + task + 1
        inside, left, token, last = self.words.unpack_from(self.place)
        self.intruders += inside != 0
        self.words.pack_into(self.place, 0, me, left, token, last)
        if last not in (0, me) and inside == 0:
            ours = self.first < last <= self.first + tasks
            (self.handed if ours else self.crossed).add(granted - left)

    def leave(self, task):
        self.words.pack_into(self.place, 0, 0, now(), 0, self.first + task + 1)


class Round:
    def __init__(self, client, number, start, seconds, cycles, check):
        self.client, self.start, self.end, self.cycles, self.check = client, start, start + int(seconds * 1e9), cycles, check
        self.cpu, self.waits = time.process_time_ns(), Counts()
        self.in_time, self.total, self.longest, self.since = ([0] * tasks for _ in range(4))
        self.all = [asyncio.create_task(self.run(task, name_of(number, task))) for task in range(tasks)]

    async def run(self, task, name):
        await asyncio.sleep(max(self.start - now(), 0) / 1e9)
        # With its own choice of pauses.
        lock = self.client.lock(name, timeout=lease)
        before, done = now(), 0
        while before < self.end and done < self.cycles:
            self.since[task] = before
            await lock.acquire()
            granted = now()
            self.since[task] = 0
            self.waits.add(granted - before)
            self.longest[task] = max(self.longest[task], granted - before)
            if self.check:
                self.check.enter(task, granted)
            while section and now() < granted + section:
                pass
            if self.check:
                self.check.leave(task)
            await lock.release()
            before = now()
            done += 1
            self.total[task] = done
            if before <= self.end:
                self.in_time[task] = done

    async def finish(self):
        left = max(self.end - now(), 0) / 1e9
        done, pending = await asyncio.wait(self.all, timeout=left + PATIENCE)
        cpu = (time.process_time_ns() - self.cpu) / 1e3
        for task in done:
            task.result()
        still = [now() - since for since in self.since if since]
        check = self.check or Check
        return {
            "cycles": sum(self.in_time),
            "total": sum(self.total),
            "tasks": self.in_time,
            "waits": self.waits,
            "longest_wait_us": max(self.longest + still) / 1e3,
            "handed": getattr(check, "handed", {}),
            "crossed": getattr(check, "crossed", {}),
            "intruders": getattr(check, "intruders", 0),
            "stuck": len(pending),
            "cpu_us": cpu,
        }


async def order():
    """The next one; empty at the end of the input."""
    return (await asyncio.to_thread(sys.stdin.readline)).split()


async def drain(client, number, start, gate):
    round_ = Round(client, number, start, float(options["seconds"]), 1, Check())
    await asyncio.sleep(max(start - now(), 0) / 1e9 + 1)
    say("waiting")
    while await order() not in ([], ["release"]):
        pass
    round_.cpu, opened = time.process_time_ns(), now()
    if gate:
        await gate.release()
    outcome = await round_.finish()
    return {**outcome, "took_us": (now() - opened) / 1e3}


async def go(client, number, start, gate):
    if scenario == "drain":
        return await drain(client, number, start, gate)
    if scenario == "crash":
        lock = client.lock(name_of(number, 0), timeout=lease)
        await lock.acquire()
        granted = now()
        await lock.release()
        return {"cycles": 1, "total": 1, "granted_ns": granted}
    check = Check() if one_name else None
    return await Round(client, number, start, float(options["seconds"]), float("inf"), check).finish()


async def main():
    if options.get("mode", "mutex") != "mutex" or "," in options["url"]:
        say({"unsupported": "has locks of one server, and no other kinds"})
        sys.exit(1)
    client, gate = Redis.from_url(options["url"]), None
    if scenario == "cycles":
        await Round(client, 0, now(), float(options.get("warmup", 0)), float("inf"), None).finish()
    say("ready")
    while words := await order():
        try:
            if words[0] == "gate":
                gate = client.lock(name_of(words[1], 0), timeout=lease)
                await gate.acquire()
                say("gated")
            elif words[0] == "go":
                say(await go(client, words[1], int(words[2]), gate))
                gate = None
        except Exception as e:
            say({"error": f"{type(e).__name__}: {e}"})


asyncio.run(main())
