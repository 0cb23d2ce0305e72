/**
 * A controller in several processes that share its work: it counts the words of each job. Each process reconciles the keys
 * of its own slots. One that is stopped gives them to the others, one that is killed loses them with its lease. In terminals:
 *
 *     npm start -- --resource jobs=/jobs/ --resource results=/results/ --resource members=/members/
 *
 *     npm run example examples/sharded-controller/main.ts Ada
 *     npm run example examples/sharded-controller/main.ts Ben
 *
 *     bin/watch-fanout put -r jobs a '"four words are here"'
 *     bin/watch-fanout get -r results a -o value
 */
import { setTimeout as delay } from "node:timers/promises";
import {
  connect,
  controller,
  jsonValues,
  type Operation,
  Session,
  ShardAssignment,
} from "watch-fanout/client";
import { z } from "zod";

const Result = z.object({ words: z.number(), by: z.string(), token: z.number() });

const [member = `process-${process.pid}`] = process.argv.slice(2);
const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const jobs = client.resource("jobs", jsonValues(z.string().parse));
const results = client.resource("results", jsonValues(Result.parse));
const log = (text: string) => console.log(`${new Date().toISOString()} ${member} ${text}`);
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

const session = await Session.open(client, { ttlMs: 5_000 });
const shard = new ShardAssignment({
  ...{ session, resource: "members", group: "word-count", member, slots: 16 },
});
shard.onChange(({ acquired, released }) => {
  for (const { index, fencingToken } of acquired) log(`has slot ${index} by ${fencingToken}.`);
  for (const { index } of released) log(`gives up slot ${index}.`);
});
const sharing = shard.run(stopping.signal);

await controller({
  ...{ for: jobs, owns: [results], shard, workers: 4 },
  async reconcile(key, { object: job, lister }) {
    const guard = shard.guard(key);
    const token = shard.ownedSince(key)?.revision;
    // Lost since this call was begun: its next owner reconciles the key.
    if (guard === undefined || token === undefined) return;
    const words = job?.value.split(" ").length;
    if (lister(results).get(key)?.value.words === words) return;
    log(`begins ${key} by ${token}.`);
    // Such work takes its time.
    await delay(200);
    const name = { resource: "results", key };
    const change: Operation =
      words === undefined
        ? { type: "delete", ...name }
        : { type: "put", ...name, value: results.codec.encode({ words, by: member, token }) };
    // Has no effect if another process has the slot by now.
    const { succeeded } = await client.transaction({ compares: [guard], operations: [change] });
    log(`${succeeded ? "ends" : "was too late for"} ${key}.`);
  },
}).run(stopping.signal);
await sharing;
await session.close();
client.close();
