/**
 * A job with leader election: of all processes that run this, one works, and another one takes over when it ends or is cut
 * off. In terminals:
 *
 *     npm start -- --resource jobs=/jobs/
 *
 *     npm run example examples/leader/main.ts Ada
 *     npm run example examples/leader/main.ts Ben
 *
 *     bin/watch-fanout watch -r jobs
 */
import { setTimeout as delay } from "node:timers/promises";
import { connect, LeaderElector, Session } from "watch-fanout/client";

const [identity = `process ${process.pid}`] = process.argv.slice(2);
const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const name = { resource: "jobs", key: "count" };
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

const session = await Session.open(client, { ttlMs: 5_000 });
const elector = new LeaderElector({
  ...{ session, resource: "jobs", name: "election", identity },
  onStartedLeading: async (signal, leadership) => {
    console.log(`${identity} leads, with token ${leadership.fencingToken}.`);
    while (!signal.aborted) {
      const { objects } = await client.batchGet([name]);
      const count = Number(Buffer.from(objects[0]?.value ?? "0").toString()) + 1;
      // Has no effect once another one leads, which this one may not know yet: it may have been stopped for a while.
      const { succeeded } = await client.transaction({
        compares: [leadership.guard()],
        operations: [{ type: "put", ...name, value: Buffer.from(`${count}`) }],
      });
      if (succeeded) console.log(`${identity} counts ${count}.`);
      else console.log(`${identity} was replaced, so it does not count ${count}.`);
      await delay(1_000, undefined, { signal }).catch(() => {});
    }
  },
  onStoppedLeading: () => console.log(`${identity} does not lead any more.`),
  onNewLeader: ({ value }) => console.log(`The leader is ${value}.`),
});
try {
  await elector.run(stopping.signal);
} finally {
  await session.close();
  client.close();
}
