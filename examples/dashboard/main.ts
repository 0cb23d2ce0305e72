/**
 * Counts the objects of each namespace, which is what their keys begin with, and prints a count when it changes. It watches
 * keys only, so that no value is sent to it, however large values are. In three terminals:
 *
 *     npm start
 *
 *     npm run example examples/dashboard/main.ts default
 *
 *     bin/watch-fanout put ns-1/pod-7 hello
 */
import { connect, requiresRelist } from "watch-fanout/client";

const [resource = "default"] = process.argv.slice(2);
const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

/** The counts that were printed last. */
const printed = new Map<string, number>();

while (!stopping.signal.aborted) {
  try {
    await follow();
  } catch (error) {
    // The changes in between are not known: begin with the current state again.
    if (!requiresRelist(error)) throw error;
    console.error(error.message);
  }
}
client.close();

async function follow(): Promise<void> {
  const keys = new Map<string, Set<string>>();
  const batches = client.watch(resource, {
    ...{ view: "KEYS", sendInitialEvents: true, signal: stopping.signal },
    // A dashboard does not show intermediate states.
    delivery: "LATEST_STATE",
  });
  for await (const { events } of batches) {
    for (const { type, object } of events) {
      const [namespace = ""] = object.key.split("/");
      const those = keys.get(namespace) ?? new Set();
      keys.set(namespace, those);
      if (type === "DELETED") those.delete(object.key);
      else those.add(object.key);
    }
    print(keys);
  }
}

function print(keys: ReadonlyMap<string, ReadonlySet<string>>): void {
  for (const namespace of new Set([...printed.keys(), ...keys.keys()])) {
    const count = keys.get(namespace)?.size ?? 0;
    if (printed.get(namespace) === count) continue;
    printed.set(namespace, count);
    console.log(`${namespace} ${count}`);
  }
}
