import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { listWatchService } from "../../../../src/wire/services.ts";
import { Message } from "../../../foreign/protobuf.ts";
import { serveThings } from "../../served.ts";
import { FrameClient, messagesOf, type ReceivedStream } from "./frame-client.ts";

const { Watch, List } = listWatchService;
const watchThings = Watch.requestSerialize({ resource: "things" });
const listThings = List.requestSerialize({ resource: "things" });
const certificates = new URL("../../../config/certificates/", import.meta.url);
const tls = {
  cert: readFileSync(new URL("cert.pem", certificates)),
  key: readFileSync(new URL("key.pem", certificates)),
};

/** Random numbers from a seed (mulberry32). */
class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** A whole number below `end`. */
  below(end: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let bits = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return Math.floor((((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32) * end);
  }

  of<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T;
  }
}

const largestWindow = 2 ** 31 - 1;
const steps = 120;
/** FUZZ_SEEDS=FROM-TO runs others. */
const [firstSeed = 1, lastSeed = 6] = (process.env["FUZZ_SEEDS"] ?? "")
  .split("-")
  .filter(Boolean)
  .map(Number);
const seeds = Array.from({ length: lastSeed - firstSeed + 1 }, (_, i) => firstSeed + i);

/** A client, and what it has done that allows the server to close the connection. */
interface Fuzzed {
  readonly client: FrameClient;
  readonly isWatch: Set<number>;
  isBroken: boolean;
}

describe.each([false, true])("With TLS %s,", (isTls) => {
  test.each(seeds)(
    "each stream gets every event within its flow control, whatever its client sends, seed %i",
    async (seed) => {
      const random = new Random(seed);
      const served = await serveThings({ server: isTls ? { tls } : {} });
      const fuzzed = await Promise.all(
        Array.from({ length: 3 }, () => connected(served.server.port, isTls, random)),
      );
      let revision = 0;
      for (let step = 0; step < steps; step++) {
        if (random.below(3) === 0) {
          const value = Buffer.alloc(random.of([10, 300, 300, 5_000, 40_000]), step);
          revision = (await served.storage.put({ key: `k${random.below(20)}`, value })).revision;
        }
        act(random.of(fuzzed), random);
        for (const { client } of fuzzed) client.release(random.of([0, 1, 5, 13, 1_000, Infinity]));
        if (random.below(4) === 0) await new Promise((resolve) => setImmediate(resolve));
      }
      // Every stream that is open still gets the rest.
      for (const each of fuzzed) heal(each);
      for (const { client, isWatch, isBroken } of fuzzed) {
        if (isBroken) continue;
        const open = [...client.streams.values()].filter(({ id }) => isWatch.has(id));
        await client.until(
          () => client.isClosed || open.every((stream) => isDone(stream, revision)),
        );
      }
      for (const { client, isWatch, isBroken } of fuzzed) {
        expect(client.violations).toEqual([]);
        if (!isBroken) expect([client.isClosed, client.goAwayCode]).toEqual([false, undefined]);
        for (const stream of client.streams.values()) {
          if (isWatch.has(stream.id)) expect(gapOf(stream)).toBeUndefined();
        }
        client.socket.destroy();
      }
      const { server: running } = served;
      const held = (): number =>
        running.connections + running.openStreams + running.stats().unsent.bytes;
      while (held() > 0) await new Promise((resolve) => setImmediate(resolve));
    },
  );
});

async function connected(port: number, isTls: boolean, random: Random): Promise<Fuzzed> {
  const client = await FrameClient.to(port, isTls);
  client.holdsBack = true;
  client.greet(random.of([undefined, 0, 1, 100, 65_535, 2 ** 20]));
  const fuzzed: Fuzzed = { client, isWatch: new Set<number>(), isBroken: false };
  watch(fuzzed, random);
  return fuzzed;
}

function watch(fuzzed: Fuzzed, random: Random): void {
  const { id } = fuzzed.client.call(Watch.path, watchThings, random.of([0, 0, 17]));
  fuzzed.isWatch.add(id);
}

/** NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM, and one that does not exist. */
const resetCodes = [0, 1, 2, 7, 8, 11, 255];

/** Does one thing at random. */
function act(fuzzed: Fuzzed, random: Random): void {
  const { client } = fuzzed;
  const ids = [...client.streams.keys()];
  const open = ids.filter((id) => client.streams.get(id)?.end === undefined);
  const few = (): number => 1 + random.below(random.of([1, 9, 100, 20_000, 200_000]));
  const grantTo = random.of([0, 0, ...open]);
  switch (random.below(24)) {
    case 0:
    case 1:
      watch(fuzzed, random);
      break;
    case 2:
      client.call(List.path, listThings);
      break;
    case 3:
      client.settings(random.of([0, 1, 50, 20_000, 65_535, 2 ** 20]));
      break;
    case 4:
      client.settings(undefined, random.of([16_384, 16_385, 2 ** 20]));
      break;
    case 5:
      if (open.length > 1) client.reset(random.of(open), random.of(resetCodes));
      break;
    case 6:
      client.ping();
      break;
    case 7:
      client.socket.pause();
      break;
    case 8:
    case 9:
      client.socket.resume();
      break;
    case 10:
      // Too much for a stream: the server resets it, or closes the connection if settings follow.
      if (random.below(20) === 0 && open.length > 1) {
        fuzzed.isBroken = true;
        const id = random.of(open);
        client.grant(id, largestWindow);
        client.grant(id, largestWindow);
      }
      break;
    case 11:
      if (random.below(20) > 0) break;
      // Too much for the connection, which the server closes.
      fuzzed.isBroken = true;
      client.grant(0, largestWindow);
      client.grant(0, largestWindow);
      break;
    case 12:
      if (random.below(20) > 0) break;
      fuzzed.isBroken = true;
      client.goAway();
      break;
    case 13:
      if (random.below(20) > 0) break;
      fuzzed.isBroken = true;
      client.release(Infinity);
      client.socket.end();
      break;
    case 14:
      if (random.below(20) > 0) break;
      fuzzed.isBroken = true;
      client.socket.destroy();
      break;
    case 15:
      if (random.below(20) > 0) break;
      fuzzed.isBroken = true;
      client.write(Buffer.from(Array.from({ length: 30 }, () => random.below(256))));
      break;
    case 16:
      client.reset(client.call(Watch.path, watchThings).id, random.of(resetCodes));
      break;
    default:
      client.grant(grantTo, few());
  }
}

/** Sends the rest, reads, and opens all windows. */
function heal(fuzzed: Fuzzed): void {
  const { client, isBroken } = fuzzed;
  client.holdsBack = false;
  client.release(Infinity);
  client.socket.resume();
  if (isBroken) return;
  client.settings(2 ** 24);
  client.grant(0, 2 ** 30 - Math.max(0, client.window));
}

function isDone(stream: ReceivedStream, revision: number): boolean {
  return stream.end !== undefined || revisionsOf(stream).last >= revision;
}

/** The revisions of the events of a watch, and its last resume point. */
function revisionsOf(stream: ReceivedStream): { events: number[]; first: number; last: number } {
  const events: number[] = [];
  let first = -1;
  let last = 0;
  for (const bytes of messagesOf(stream)) {
    const message = new Message(bytes);
    // WatchResponse: revision = 1, events = 2; Event: object = 2; StoredObject: mod_revision = 4.
    for (const event of message.all(2)) {
      events.push(new Message(new Message(event).bytes(2)).number(4));
    }
    last = Math.max(last, message.number(1));
    if (first === -1) first = last;
  }
  return { events, first, last };
}

/** The first event that is missing or out of order; undefined if all are there. */
function gapOf(stream: ReceivedStream): number | undefined {
  const { events, first } = revisionsOf(stream);
  return events.find((revision, i) => revision !== first + 1 + i);
}
