import { setImmediate as nextTurn } from "node:timers/promises";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CacherOptions } from "../../src/cacher/options.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import type { ServerOptions } from "../../src/server/server.ts";
import type { Operation } from "../../src/storage/memory/mvcc-store.ts";
import type { ManualTimers } from "../server/limits/manual-timers.ts";
import { serve, serveAdded } from "../server/served.ts";
import type { TestClient } from "../server/test-client.ts";
import type { Backend, OpenBackend } from "./backends.ts";
import { SlowStorage } from "./slow-storage.ts";

/** The name of the resource. */
export const resource = "things";

/** One service in front of a backend, and a client of it. */
export interface Replica {
  readonly cacher: Cacher;
  readonly client: TestClient;
  readonly clock: ManualTimers;
  readonly port: number;
  /** The storage between this replica and the store. */
  readonly upstream: SlowStorage;
}

export interface ReplicaOptions {
  readonly cacher?: Partial<CacherOptions>;
  readonly server?: Partial<ServerOptions>;
}

/** A replica whose cache is ready. Objects have the labels and fields of JSON. */
export async function startReplica(
  backend: Backend,
  options: ReplicaOptions = {},
): Promise<Replica> {
  const { clock } = backend;
  const logger = pino({ level: "silent" });
  const upstream = new SlowStorage(backend.storage());
  const codec = new JsonCodec({ fields: ["spec.node", "phase"] });
  const cacher = new Cacher({
    storage: upstream,
    clock,
    logger,
    name: resource,
    attributes: new AttributeReader(codec, clock, logger),
    consistencyIntervalMs: 0,
    ...options.cacher,
  });
  onTestFinished(() => cacher.close());
  cacher.start();
  // A wait for progress requests it again after a time on the test's clock.
  while (!cacher.ready) {
    clock.advance(1);
    await nextTurn();
  }
  // vitest.config.ts runs the rows again, with the service added to a server of grpc-js.
  const by = process.env["TEST_SERVER"] === "grpc-js" ? serveAdded : serve;
  const { server, client } = await by(new Map([[resource, cacher]]), clock, options.server);
  return { cacher, client, clock, port: server.port, upstream };
}

/** A backend with one replica in front of it. */
export interface World extends Replica {
  readonly backend: Backend;
  /** Another in front of the same. */
  another(options?: ReplicaOptions): Promise<Replica>;
  /** Writes behind all replicas' backs, in one transaction. null deletes. */
  write(...entries: readonly (readonly [key: string, value: string | null])[]): Promise<number>;
}

export async function openWorld(open: OpenBackend, options: ReplicaOptions = {}): Promise<World> {
  const backend = await open();
  return {
    ...(await startReplica(backend, options)),
    backend,
    another: (others = {}) => startReplica(backend, others),
    write: (...entries) => backend.write(entries.map(operation)),
  };
}

function operation([key, value]: readonly [key: string, value: string | null]): Operation {
  return value === null ? { type: "delete", key } : { type: "put", key, value: Buffer.from(value) };
}

/** Resolves when so many calls wait for the replica's cache to come to a revision. */
export async function untilWaiting({ cacher }: Replica, count: number = 1): Promise<void> {
  while (cacher.stats().waitingRequests < count) await nextTurn();
}

/** Resolves when the replica's cache has come to the revision, and has passed on what led to it. */
export async function untilCached({ client }: Replica, revision: number): Promise<void> {
  const revision_match = "REVISION_MATCH_NOT_OLDER_THAN";
  await client.list({ resource, revision_match, revision, page_size: 1 });
}

/** An object's value in JSON, with a label and a field. */
export function thing(app: string, node: string = ""): string {
  return JSON.stringify({ metadata: { labels: { app } }, spec: { node } });
}
