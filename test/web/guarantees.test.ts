import { ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { Delivery } from "../../src/cacher/request/request.ts";
import type { Client } from "../../src/client/client.ts";
import type { WatchEvent } from "../../src/model/event.ts";
import type { StoredObject } from "../../src/model/object.ts";
import { type Served, startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { deliveries } from "../foreign/deliveries.ts";
import { brokenBy } from "../guarantees/guarantees.ts";
import type {
  Change,
  SeenEvent,
  SeenObject,
  SeenResponse,
  Sequence,
} from "../guarantees/recording.ts";
import { Tier } from "../relay/tiers.ts";
import {
  nameOf,
  reasonOf,
  type StoredMessage,
  type WebProtocol,
  webClient,
  webProtocols,
} from "./web-clients.ts";

/*
 * What clients of Connect and gRPC-Web receive while keys are written, from a root, a relay, and a relay with workers, held
 * to the guarantees of a watch. Each stream is cut again and again, and resumed behind its last resume point.
 */

const resource = "things";
const keys = ["a", "b", "c", "d"];
const writes = 60;
/** After how many messages a stream is cut. */
const cutAfter = 5;

let root: Tier;
let relay: Tier;
let workers: Served;

beforeAll(async () => {
  root = await Tier.start({ resource: `${resource}=` });
  relay = await Tier.relay(root.address);
  workers = await startServe(["--workers", "2", "--upstream", root.address]);
  await untilStatus(`${workers.admin}/readyz`, 200);
});

afterAll(async () => {
  await workers?.process[Symbol.asyncDispose]();
  await relay?.stop();
  await root?.stop();
});

const types = ["ADDED", "MODIFIED", "DELETED"] as const;

interface EventMessage {
  readonly type: number;
  readonly object?: StoredMessage;
  readonly previous?: StoredMessage;
}

function seenMessage(message: StoredMessage): SeenObject {
  const { key, value, createRevision, modRevision, version } = message;
  return {
    ...{ key, value: Buffer.from(value).toString("latin1"), version: Number(version) },
    ...{ createRevision: Number(createRevision), modRevision: Number(modRevision) },
  };
}

function seenEvent({ type, object, previous }: EventMessage): SeenEvent {
  const name = types[type - 1];
  if (name === undefined || object === undefined) throw new RangeError("An event is incomplete.");
  return {
    ...{ type: name, object: seenMessage(object) },
    previous: previous && seenMessage(previous),
  };
}

/** Whether a worker gives the connection to others: its streams end with DRAINING, and new ones are not taken. */
function isDraining(error: unknown): boolean {
  const failure = ConnectError.from(error);
  return reasonOf(failure) === "DRAINING" || failure.message.includes("REFUSED_STREAM");
}

/** Watches until the store's last revision, which is known once `last` resolves, in streams of a few messages each. */
async function watched(
  port: number,
  how: WebProtocol,
  delivery: Delivery,
  onPosition: () => void,
  last: Promise<number>,
): Promise<Sequence> {
  const client = webClient(port, how);
  const streams: SeenResponse[][] = [];
  let [point, end] = [0, Infinity];
  void last.then((revision) => {
    end = revision;
  });
  while (point < end) {
    const stream: SeenResponse[] = [];
    const after = point === 0 ? {} : { afterRevision: BigInt(point) };
    const request = {
      ...{ resource, ...after, includePrevious: true, eagerBookmarks: true },
      delivery: deliveries[delivery],
    };
    try {
      for await (const message of client.watch(request)) {
        const { revision, initialEventsEnd, events } = message;
        const response = {
          ...{ revision: revision === undefined ? undefined : Number(revision), initialEventsEnd },
          events: (events as readonly EventMessage[]).map(seenEvent),
        };
        stream.push(response);
        point = response.revision ?? point;
        onPosition();
        const isCut = stream.length >= cutAfter && response.revision !== undefined;
        if (isCut || point >= end) break;
      }
    } catch (error) {
      if (!isDraining(error)) throw error;
    }
    // One that was refused has said nothing.
    if (stream.length > 0) streams.push(stream);
  }
  const everything = (): boolean => true;
  const view = { includes: everything, matches: everything, includePrevious: true };
  return { view, delivery, streams };
}

function seenObject({ key, value, ...revisions }: StoredObject): SeenObject {
  const { createRevision, modRevision, version } = revisions;
  const text = Buffer.from(value).toString("latin1");
  return { key, value: text, createRevision, modRevision, version };
}

function changeOf({ type, revision, object, previous }: WatchEvent): Change {
  const before = previous && seenObject(previous);
  const after = type === "DELETED" ? undefined : seenObject(object);
  return { revision, key: object.key, before, after };
}

/** Writes keys, of which some together. Returns the last revision. */
async function write(client: Client, seed: number): Promise<number> {
  for (let i = 0; i < writes; i++) {
    const key = keys[(i * 7 + seed) % keys.length] as string;
    const other = keys[(i * 7 + seed + 1) % keys.length] as string;
    const value = Buffer.from(`${seed}-${i}`);
    if (i % 5 === 4) {
      await client.transact(async (transaction) => {
        for (const each of [key, other]) transaction.put(resource, each, value);
      });
    } else if (i % 5 === 3) {
      await client.put(resource, key, value);
      await client.delete(resource, key);
    } else await client.put(resource, key, value);
  }
  return (await client.put(resource, "end", Buffer.of())).revision;
}

test("Watches by Connect and gRPC-Web keep their guarantees at a root, a relay and workers.", async () => {
  const client = root.client();
  const { promise: last, resolve: onLast } = Promise.withResolvers<number>();
  // Of a test that has failed, too, no stream is opened again.
  onTestFinished(() => onLast(0));
  const ports = { root: root.port, relay: relay.port, workers: Number(workers.grpc.split(":")[1]) };
  const positions: Promise<void>[] = [];
  const sequences = Object.entries(ports).flatMap(([tier, port]) =>
    webProtocols.flatMap((how) =>
      (["EVERY_EVENT", "LATEST_STATE"] as const).map(async (delivery) => {
        const { promise, resolve } = Promise.withResolvers<void>();
        positions.push(promise);
        const sequence = await watched(port, how, delivery, resolve, last);
        return { name: `${delivery} at the ${tier} by ${nameOf(how)}`, sequence };
      }),
    ),
  );
  // One that fails before it has a position fails the test at once.
  await Promise.race([Promise.all(positions), Promise.all(sequences)]);
  const all = client.watch(resource, { afterRevision: 1, includePrevious: true });
  const changes: Change[] = [];
  onLast(await write(client, 1));
  // For those that had everything before they knew that it was all.
  const { revision: end } = await client.put(resource, "end", Buffer.of());
  for (let at = 0; at < end; ) {
    const { value } = await all.next();
    if (value === undefined) throw new Error("The watch has ended.");
    changes.push(...value.events.map(changeOf));
    at = value.revision;
  }
  await all.return();
  let cuts = 0;
  for (const { name, sequence } of await Promise.all(sequences)) {
    expect(brokenBy(sequence, changes), name).toEqual([]);
    cuts += sequence.streams.length - 1;
    // The guarantees see what is missing.
    const [first, ...others] = sequence.streams;
    const without = (first ?? []).map((response) => ({ ...response, events: [] }));
    const lossy = { ...sequence, streams: [without, ...others] };
    expect(brokenBy(lossy, changes), name).not.toEqual([]);
  }
  expect(changes.length).toBeGreaterThan(writes);
  expect(cuts).toBeGreaterThan(sequences.length);
}, 240_000);
