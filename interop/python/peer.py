"""Does with redis-py's Lock what it is told line by line: ACTOR take|try|give NAME [LEASE_MS]. Ends with its input."""

import os
import queue
import sys
import threading

import redis
from redis.lock import Lock

saying = threading.Lock()


def say(line):
    with saying:
        print(line, flush=True)


class Actor(threading.Thread):
    """A thread of its own, because redis-py's locks belong to threads. Its commands run in order."""

    def __init__(self, name, client):
        super().__init__(daemon=True)
        self.actor, self.client = name, client
        self.told, self.locks = queue.Queue(), {}
        self.start()

    def run(self):
        while True:
            try:
                value = self.obey(*self.told.get())
                answer = f"ok {value}".rstrip()
            except Exception as e:
                answer = f"err {type(e).__name__}: {' '.join(str(e).split())}"
            say(f"{self.actor} {answer}")

    def obey(self, verb, name, lease=None):
        if verb == "give":
            self.locks.pop(name).release()
            return ""
        if verb not in ("take", "try"):
            raise ValueError(f"no such command: {verb}")
        lock = Lock(self.client, name, timeout=int(lease) / 1000)
        if not lock.acquire(blocking=verb == "take"):
            return "refused"
        self.locks[name] = lock
        return "taken" if verb == "try" else ""


def main():
    if len(sys.argv) != 3 or sys.argv[1] != "--single":
        sys.exit("--single HOST:PORT")
    host, port = sys.argv[2].rsplit(":", 1)
    client = redis.Redis(host=host, port=int(port))
    client.ping()
    say("ready")
    actors = {}
    for line in sys.stdin:
        actor, *words = line.split()
        if words == ["quit"]:
            say(f"{actor} ok")
            break
        if actor not in actors:
            actors[actor] = Actor(actor, client)
        actors[actor].told.put(words)
    # Actors may still wait for locks.
    os._exit(0)


main()
