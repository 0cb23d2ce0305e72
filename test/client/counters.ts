import { onTestFinished } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import type { ConnectOptions } from "../../src/client/calls/options.ts";
import { connect } from "../../src/client/connect.ts";
import type { DecodeFailure } from "../../src/client/values/typed-object.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import { CachedServer } from "./cached-server.ts";

export interface Counter {
  readonly n: number;
}

export const counters = jsonValues<Counter>((parsed) => {
  const { n } = parsed as Partial<Counter>;
  if (typeof n !== "number") throw new TypeError("It has no n.");
  return { n };
});

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** The resource `things` of a service of its own, typed, and the store below the service. */
export async function serveCounters(options: Partial<ConnectOptions> = {}) {
  const memory = new MemoryStore({ clock: systemClock });
  const store = new MemoryStorage({ store: memory, resource: "things" });
  const server = await CachedServer.over(store, {}, 0, memory);
  const client = connect({ address: server.address, ...options });
  onTestFinished(async () => {
    client.close();
    await server.close();
    await memory.close();
  });
  const failures: DecodeFailure[] = [];
  const things = client.resource("things", counters, {
    onUndecodable: (failure) => failures.push(failure),
  });
  return { store, client, things, failures, cacher: server.cacher };
}

/** Returns all items of an iteration that ends. */
export async function all<T>(iterable: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of iterable) items.push(item);
  return items;
}
