/** An ObjectCache in its own process, with a reference to each key, and a writer of these keys. */
import { setTimeout as delay } from "node:timers/promises";
import { type Client, connect } from "../src/client/connect.ts";
import { ObjectCache } from "../src/client/object-cache/object-cache.ts";
import { jsonValues } from "../src/client/values/value-codec.ts";
import { answerParent } from "./child.ts";
import { resource } from "./servers.ts";

export type ObjectCacheQuestion =
  | { readonly do: "fill"; readonly url: string; readonly keys: number }
  | { readonly do: "open"; readonly isOneStream: boolean }
  | { readonly do: "write"; readonly perSecond: number; readonly count: number };

const json = jsonValues<number>();

class ObjectCacheLoad {
  #client: Client | undefined;
  #keys: string[] = [];
  #cache: ObjectCache<number> | undefined;
  #written = 0;

  async fill(url: string, keys: number): Promise<void> {
    const client = connect({ address: new URL(url).host });
    this.#client = client;
    this.#keys = Array.from({ length: keys }, (_, n) => `ns-${n % 10}/object-${n}`);
    for (const key of this.#keys) await client.put(resource, key, json.encode(0));
  }

  /** Returns how long it takes until each object is known, in milliseconds. */
  async open(isOneStream: boolean): Promise<number> {
    const client = this.#client as Client;
    const { reachability } = client;
    const separate = { watch: client.watch.bind(client), reachability };
    const cache = new ObjectCache<number>({
      client: isOneStream ? client : separate,
      ...{ resource, codec: json, syncTimeoutMs: 60_000 },
    });
    this.#cache = cache;
    const start = performance.now();
    for (const key of this.#keys) cache.addReference(key);
    await Promise.all(this.#keys.map((key) => cache.get(key)));
    return performance.now() - start;
  }

  /** Resolves when the cache has what was written. */
  async write(perSecond: number, count: number): Promise<void> {
    const start = performance.now();
    for (let i = 0; i < count; i++) {
      await delay(Math.max(0, start + (i * 1_000) / perSecond - performance.now()));
      this.#written++;
      const key = this.#keys[this.#written % this.#keys.length] as string;
      await this.#client?.put(resource, key, json.encode(this.#written));
      if (i < count - 1) continue;
      while ((await this.#cache?.get(key))?.value !== this.#written) await delay(5);
    }
  }
}

if (import.meta.main) {
  const load = new ObjectCacheLoad();
  answerParent<ObjectCacheQuestion>(async (question) => {
    if (question.do === "fill") return load.fill(question.url, question.keys);
    if (question.do === "open") return load.open(question.isOneStream);
    return load.write(question.perSecond, question.count);
  });
}
