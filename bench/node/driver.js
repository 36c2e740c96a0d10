// node-redlock as a contender: says `ready`, runs a round for every `go` on its input, and prints one line for each.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import Redlock from "redlock";
import { Check, Counts } from "./check.js";

const PATIENCE_MS = 12_000;
const options = new Map();
for (let i = 2; i + 1 < process.argv.length; i += 2) {
  options.set(process.argv[i].slice(2), process.argv[i + 1]);
}
const text = (name, otherwise) => options.get(name) ?? otherwise;
const number = (name, otherwise) => Number(text(name, otherwise));
const tasks = number("tasks", 1);
const lease = number("lease-ms", 30_000);
const oneName = text("names", "own") === "one";

const say = (line) => process.stdout.write(`${typeof line === "string" ? line : JSON.stringify(line)}\n`);
const now = () => Number(process.hrtime.bigint());
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const cpu = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};

/** The same in all processes where all want one name. */
function nameOf(round, task) {
  const name = `bench:${text("contender")}:${round}`;
  return oneName ? name : `${name}:${number("process", 0)}:${task}`;
}

if (text("mode", "mutex") !== "mutex") {
  say({ unsupported: `has no ${text("mode")}` });
  process.exit(1);
}
const clients = text("url").split(",").map((url) => new Redis(url));
// Its own choice of pauses; only the number of tries is without end.
const redlock = new Redlock(clients, { retryCount: -1 });
const acquire = (name) => redlock.acquire([name], lease);

class Round {
  constructor(start, seconds, cycles, check) {
    Object.assign(this, { start, end: start + seconds * 1e9, cycles, check, cpu: cpu(), fault: null });
    this.section = number("section-us", 0) * 1000;
    this.waits = new Counts();
    this.tasks = Array.from({ length: tasks }, () => ({ inTime: 0, total: 0, longest: 0, since: 0, ended: false }));
  }

  begin(round) {
    const all = this.tasks.map((task, at) => this.#run(task, at, nameOf(round, at)).catch((e) => (this.fault = e)));
    this.all = Promise.all(all);
  }

  async #run(task, at, name) {
    await sleep(Math.max(this.start - now(), 0) / 1e6);
    let before = now();
    for (let done = 0; before < this.end && done < this.cycles; ) {
      task.since = before;
      const lock = await acquire(name);
      const granted = now();
      task.since = 0;
      this.waits.add(granted - before);
      task.longest = Math.max(task.longest, granted - before);
      this.check?.enter(at, granted);
      while (this.section > 0 && now() < granted + this.section);
      this.check?.leave(at, now());
      await lock.release();
      before = now();
      task.total = ++done;
      if (before <= this.end) task.inTime = done;
    }
    task.ended = true;
  }

  async finish() {
    const left = Math.max(this.end - now(), 0) / 1e6;
    let timer;
    const late = new Promise((done) => (timer = setTimeout(done, left + PATIENCE_MS)));
    await Promise.race([this.all, late]);
    clearTimeout(timer);
    if (this.fault) return { error: String(this.fault) };
    const sum = (of) => this.tasks.reduce((all, task) => all + of(task), 0);
    const longest = this.tasks.map((task) => Math.max(task.longest, task.since ? now() - task.since : 0));
    return {
      cycles: sum((task) => task.inTime),
      total: sum((task) => task.total),
      tasks: this.tasks.map((task) => task.inTime),
      waits: this.waits.total(),
      longest_wait_us: Math.max(...longest) / 1e3,
      handed: this.check?.handed.total() ?? {},
      crossed: this.check?.crossed.total() ?? {},
      intruders: this.check?.intruders ?? 0,
      stuck: sum((task) => (task.ended ? 0 : 1)),
      cpu_us: cpu() - this.cpu,
    };
  }
}

const orders = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const newCheck = () => (oneName ? new Check(tasks, number("process", 0), text("check")) : null);
let gate = null;

async function released() {
  for (let order = await orders.next(); !order.done && order.value !== "release"; order = await orders.next());
}

async function drain(number_, start) {
  const round = new Round(start, number("seconds", 1), 1, newCheck());
  round.begin(number_);
  await sleep(Math.max(start - now(), 0) / 1e6 + 1000);
  say("waiting");
  await released();
  round.cpu = cpu();
  const opened = now();
  await gate?.release();
  gate = null;
  const outcome = await round.finish();
  return { ...outcome, took_us: (now() - opened) / 1e3 };
}

async function nextHolder(round) {
  const lock = await acquire(nameOf(round, 0));
  const granted = process.hrtime.bigint();
  await lock.release();
  return { cycles: 1, total: 1, granted_ns: Number(granted) };
}

async function go(number_, start) {
  const scenario = text("scenario", "cycles");
  if (scenario === "drain") return drain(number_, start);
  if (scenario === "crash") return nextHolder(number_);
  const round = new Round(start, number("seconds", 1), Infinity, newCheck());
  round.begin(number_);
  return round.finish();
}

if (text("scenario", "cycles") === "cycles") {
  const warmup = new Round(now(), number("warmup", 0), Infinity, null);
  warmup.begin(0);
  await warmup.finish();
}
say("ready");
for (let order = await orders.next(); !order.done; order = await orders.next()) {
  const [verb, round, start] = order.value.split(" ");
  if (verb === "gate") {
    gate = await acquire(nameOf(round, 0));
    say("gated");
  } else if (verb === "go") {
    say(await go(round, Number(start)).catch((e) => ({ error: String(e) })));
  }
}
process.exit(0);
