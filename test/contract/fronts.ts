import { pino } from "pino";
import { onTestFinished } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Turns } from "../../src/base/turns.ts";
import { UpstreamLimiter } from "../../src/cacher/freshness/upstream-limiter.ts";
import { ObjectAttributes } from "../../src/cacher/request/object-attributes.ts";
import { connect } from "../../src/client/connect.ts";
import { RemoteStorage } from "../../src/client/remote/remote-storage.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { UncachedResource } from "../../src/server/services/uncached-resource.ts";
import type { Storage } from "../../src/storage/storage.ts";
import { serve } from "../server/served.ts";
import type { TestClient } from "../server/test-client.ts";
import type { Backend } from "./backends.ts";
import { type Replica, resource, startReplica, type World } from "./replica.ts";

/** A client of a service that has the resource without a cache. */
export async function startUncached(
  backend: Backend,
  storage: Storage = backend.storage(),
): Promise<TestClient> {
  const { clock } = backend;
  const codec = new JsonCodec({ fields: ["spec.node"] });
  const attributes = new AttributeReader(codec, clock, pino({ level: "silent" }));
  const uncached = new UncachedResource(resource, storage, new ObjectAttributes(attributes), {
    limiter: new UpstreamLimiter(clock),
    scheduler: new Turns(clock),
  });
  return (await serve(new Map([[resource, uncached]]), clock)).client;
}

/** The storage of a relay that follows the world's service. */
export function relayStorage({ port }: World): RemoteStorage {
  const client = connect({ address: `127.0.0.1:${port}` });
  const storage = new RemoteStorage({ client, resource, clock: systemClock });
  onTestFinished(async () => {
    await storage.close();
    client.close();
  });
  return storage;
}

/** A relay that follows the world's service, with a cache of its own. */
export function startRelay(world: World): Promise<Replica> {
  return startReplica({ ...world.backend, clock: world.clock, storage: () => relayStorage(world) });
}
