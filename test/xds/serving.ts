import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { ServerOptions } from "../../src/server/server.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import type { TypeName } from "../../src/xds/types.ts";
import { XdsDoor } from "../../src/xds/xds-door.ts";
import { startReady } from "../cacher/ready.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { Recorder, serve } from "../server/served.ts";
import { DiscoveryClient } from "./discovery-client.ts";

/** The resources of the tests: each has the name of its type. */
const allTypes: readonly TypeName[] = ["cds", "eds", "lds", "rds"];

export interface ServingOptions {
  readonly types?: readonly TypeName[];
  readonly debounceMs?: number;
  readonly server?: Partial<ServerOptions>;
  /** Stored before anything is served, `RESOURCE/KEY`. */
  readonly stored?: Readonly<Record<string, Buffer | string | object>>;
  /** Whether the caches follow the store from the beginning. Default true. */
  readonly start?: boolean;
}

/** Serves xDS from caches over one embedded store. */
export async function serveXds({ types = allTypes, ...options }: ServingOptions = {}) {
  const clock = new ManualTimers();
  const lines = new Recorder();
  const logger = pino({ level: "info" }, lines);
  const store = new MemoryStore({ clock });
  const storages = new Map<string, MemoryStorage>();
  const cachers = new Map<string, Cacher>();
  for (const name of types) {
    const storage = new MemoryStorage({ store, resource: name });
    storages.set(name, storage);
    const cacher = new Cacher({ storage, clock, logger, name });
    cachers.set(name, cacher);
    onTestFinished(() => cacher.close());
  }
  const put = async (path: string, value: Buffer | string | object): Promise<number> => {
    const [resource, key] = partsOf(path);
    const bytes =
      typeof value === "string" || Buffer.isBuffer(value)
        ? Buffer.from(value as string)
        : Buffer.from(JSON.stringify(value));
    const storage = storages.get(resource);
    if (storage === undefined) throw new Error(`There is no resource ${resource}.`);
    return (await storage.put({ key, value: bytes })).revision;
  };
  const remove = async (path: string): Promise<void> => {
    const [resource, key] = partsOf(path);
    await storages.get(resource)?.delete({ key });
  };
  for (const [path, value] of Object.entries(options.stored ?? {})) await put(path, value);
  const resources = new Map(
    types.map((type) => [type, { name: type, resource: cachers.get(type) as Cacher }]),
  );
  const door = new XdsDoor({ resources, debounceMs: options.debounceMs ?? 0, clock, logger });
  door.start();
  onTestFinished(() => door.close());
  const start = async (): Promise<void> => {
    for (const cacher of cachers.values()) await startReady(cacher);
  };
  if (options.start !== false) await start();
  const served = await serve(new Map(cachers), clock, { ...options.server, doors: [door] });
  const client = new DiscoveryClient(served.server.port);
  return { ...served, door, clock, cachers, lines, put, remove, start, client };
}

function partsOf(path: string): [string, string] {
  const slash = path.indexOf("/");
  return [path.slice(0, slash), path.slice(slash + 1)];
}
