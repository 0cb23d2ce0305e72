import { isUtf8 } from "node:buffer";
import type { CachedState } from "../../src/cacher/request/request.ts";
import { keyBytes } from "../../src/model/key-bytes.ts";
import type { InProcessReplica } from "./in-process-replica.ts";

/** The etcd that is read, by its JSON API. */
interface ReadCluster {
  call(path: string, body: object): Promise<Readonly<Record<string, unknown>>>;
}

/** An object in etcd, with its absolute key. */
interface Stored {
  readonly key: Buffer;
  readonly modRevision: number;
}

/** What etcd has below the prefix, raw keys included. */
async function storedObjects(cluster: ReadCluster, prefix: string): Promise<readonly Stored[]> {
  const start = Buffer.from(prefix);
  const end = Buffer.from(start);
  end.writeUInt8(end.readUInt8(end.length - 1) + 1, end.length - 1);
  const range = { key: start.toString("base64"), range_end: end.toString("base64") };
  const { kvs = [] } = await cluster.call("kv/range", range);
  return (kvs as readonly { readonly key: string; readonly mod_revision: string }[]).map(
    ({ key, mod_revision }) => ({
      key: Buffer.from(key, "base64"),
      modRevision: Number(mod_revision),
    }),
  );
}

/** etcd, and the replicas whose caches can be read here. */
interface CachedStore {
  readonly cluster: ReadCluster;
  readonly inProcess: readonly Pick<InProcessReplica, "name" | "cacher">[];
}

/** The mod_revision of each object below the prefix, by relative key, raw keys excluded. */
export async function storedRevisions(
  cluster: ReadCluster,
  prefix: string,
): Promise<ReadonlyMap<string, number>> {
  const revisions = new Map<string, number>();
  const { length } = Buffer.from(prefix);
  for (const { key, modRevision } of await storedObjects(cluster, prefix)) {
    if (key.length > length && isUtf8(key)) {
      revisions.set(key.toString("utf8", length), modRevision);
    }
  }
  return revisions;
}

/**
 * What is wrong with the states of the caches in this process, raw keys included, which no client of a world sees.
 * While nothing is written.
 */
export async function wrongInCaches(
  { cluster, inProcess }: CachedStore,
  prefix: string,
): Promise<string[]> {
  const start = Buffer.from(prefix);
  const objects = await storedObjects(cluster, prefix);
  const stored = objects.map(({ key, modRevision }) => shown(key, modRevision));
  const wrong: string[] = [];
  for (const { name, cacher } of inProcess) {
    const request = { scope: { prefix: "" }, at: { match: "LINEARIZABLE" } } as const;
    const cached = await cacher.readState(request, (state) => objectsOf(state, start));
    if (!Array.isArray(cached)) wrong.push(`Linearizable: the cache of ${name} is ${cached}`);
    else wrong.push(...differences(cached, stored).map((what) => `Reliable: ${name} has ${what}`));
  }
  return wrong;
}

function* objectsOf({ objects }: CachedState, start: Buffer): Generator<void, string[]> {
  return Array.from(objects, ({ key, modRevision }) =>
    shown(Buffer.concat([start, keyBytes(key)]), modRevision),
  );
}

function shown(key: Buffer, modRevision: number): string {
  return `${JSON.stringify(key.toString("latin1"))} of ${modRevision}`;
}

/** In words; empty: both have the same, in the same order. */
function differences(cached: readonly string[], stored: readonly string[]): string[] {
  const more = cached.filter((object) => !stored.includes(object));
  const less = stored.filter((object) => !cached.includes(object));
  const found = [...more.map((one) => `${one}, etcd has not`), ...less.map((one) => `no ${one}`)];
  const isOrdered = found.length > 0 || cached.every((object, i) => object === stored[i]);
  return isOrdered ? found : ["its keys in another order than etcd"];
}
