// Does with node-redlock what it is told line by line: ACTOR take|try|give NAME [LEASE_MS]. Ends with its input.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import Redlock, { ExecutionError } from "redlock";

if (process.argv.length !== 4 || process.argv[2] !== "--single") {
  console.error("--single HOST:PORT");
  process.exit(2);
}
const client = new Redis(`redis://${process.argv[3]}`);
const locks = new Redlock([client], { retryDelay: 50, retryJitter: 10 });

async function obey(held, verb, name, lease) {
  if (verb === "give") {
    const lock = held.get(name);
    held.delete(name);
    await lock.release();
    return "";
  }
  if (verb !== "take" && verb !== "try") {
    throw new Error(`no such command: ${verb}`);
  }
  try {
    held.set(name, await locks.acquire([name], Number(lease), { retryCount: verb === "take" ? -1 : 0 }));
  } catch (e) {
    // It does not tell a lock that is taken from a server that is away; the attempts do.
    const attempts = e instanceof ExecutionError ? await Promise.all(e.attempts) : [];
    const errors = attempts.flatMap((a) => [...a.votesAgainst.values()]);
    if (verb === "try" && errors.length > 0 && errors.every((v) => v.name === "ResourceLockedError")) {
      return "refused";
    }
    throw e;
  }
  return verb === "try" ? "taken" : "";
}

await client.ping();
console.log("ready");
// An actor's commands run in order, those of different actors at the same time.
const actors = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = line.split(" ");
  if (words.length === 1 && words[0] === "quit") {
    console.log(`${name} ok`);
    break;
  }
  const actor = actors.get(name) ?? { held: new Map(), last: Promise.resolve() };
  actors.set(name, actor);
  actor.last = actor.last
    .then(() => obey(actor.held, ...words))
    .then((value) => console.log(`${name} ok ${value}`.trimEnd()))
    .catch((e) => console.log(`${name} err ${e.name}: ${e.message.replace(/\s+/g, " ")}`));
}
// Actors may still wait for locks.
process.exit(0);
