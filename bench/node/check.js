// Whether holders exclude each other, and how long a hand-over takes. Holders leave a note inside: who is inside, when the last one
// left, its token, who it was. Between processes it is in a file; Node maps none, so it reads and writes it.
import { openSync, readSync, writeSync } from "node:fs";

/** Counts of durations: the power of two, and 32 steps within it. */
export class Counts {
  #counts = new Map();

  add(nanos) {
    const least = Math.max(Math.floor(nanos), 32);
    const power = Math.floor(Math.log2(least));
    const bucket = power * 32 + Math.min(Math.max(Math.floor(least / 2 ** (power - 5)), 32), 63) - 32;
    this.#counts.set(bucket, (this.#counts.get(bucket) ?? 0) + 1);
  }

  total() {
    return Object.fromEntries(this.#counts);
  }
}

export class Check {
  intruders = 0;
  handed = new Counts();
  crossed = new Counts();
  #words = new Float64Array(4);
  #bytes = Buffer.alloc(32);

  constructor(tasks, process, path) {
    this.tasks = tasks;
    this.first = process * tasks;
    this.file = path === undefined ? null : openSync(path, "r+");
  }

  enter(task, granted) {
    const me = this.first + task + 1;
    const [inside, left, , last] = this.#read();
    if (inside !== 0) this.intruders++;
    this.#write([me, left, 0, last]);
    if (last === 0 || last === me || inside !== 0) return;
    const ours = this.first < last && last <= this.first + this.tasks;
    (ours ? this.handed : this.crossed).add(granted - left);
  }

  leave(task, left) {
    this.#write([0, left, 0, this.first + task + 1]);
  }

  #read() {
    if (this.file === null) return this.#words;
    readSync(this.file, this.#bytes, 0, 32, 0);
    return [0, 8, 16, 24].map((at) => Number(this.#bytes.readBigUInt64LE(at)));
  }

  #write(words) {
    if (this.file === null) {
      this.#words.set(words);
      return;
    }
    words.forEach((word, at) => this.#bytes.writeBigUInt64LE(BigInt(word), at * 8));
    writeSync(this.file, this.#bytes, 0, 32, 0);
  }
}
