import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { type RawCall, type RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import fc, { costlyRuns } from "../property.ts";
import { callBoth, parts, revisionOf, storesOfFile } from "./compared-stores.ts";
import { anyWrite, type Made, type MadeCall, watchCreation } from "./random-requests.ts";

const stores = storesOfFile();

type Step =
  | { readonly kind: "write"; readonly call: MadeCall }
  | { readonly kind: "create"; readonly make: Made }
  | { readonly kind: "cancel"; readonly id: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: anyWrite.map((call) => ({ kind: "write" as const, call })) },
  { weight: 3, arbitrary: watchCreation.map((make) => ({ kind: "create" as const, make })) },
  { weight: 1, arbitrary: fc.constantFrom(0, 1, 3).map((id) => ({ kind: "cancel" as const, id })) },
);

/** Longer than the interval at which etcd looks at what watches of the past have not been sent. */
const etcdSyncMs = 150;

/** How long both may take until they have sent the same, on a busy machine. */
const settleMs = 60_000;

/** One stream of Watch, and what has come on it. */
class Watching {
  readonly #call: RawCall;
  /** What was sent, for the report of a failure. */
  readonly requests: string[] = [];

  constructor(client: RawGrpc) {
    this.#call = client.open("/etcdserverpb.Watch/Watch");
  }

  send(request: Buffer): void {
    this.requests.push(request.toString("hex"));
    this.#call.send(request);
  }

  get #responses(): Message[] {
    return this.#call.messages.map((message) => new Message(message));
  }

  /** Number of responses to create requests, and of those to cancel requests. */
  get answers(): number {
    return this.#responses.filter((each) => each.has(3) || each.has(4)).length;
  }

  /** The events of each watch in their order, as they are on the wire, and all other responses of it. */
  get received(): object {
    const byWatch: Record<number, { events: string[]; answers: unknown[] }> = {};
    for (const message of this.#call.messages) {
      const response = new Message(message);
      byWatch[response.number(2)] ??= { events: [], answers: [] };
      const watch = byWatch[response.number(2)];
      const events = response.all(11).map((each) => each.toString("hex"));
      watch?.events.push(...events);
      const { revision, rest } = parts(message);
      if (events.length === 0) watch?.answers.push({ revision, rest: rest.toString("hex") });
    }
    return byWatch;
  }

  close(): void {
    this.#call.cancel();
  }
}

async function within(condition: () => boolean): Promise<void> {
  for (let ms = 0; !condition() && ms < settleMs; ms += 5) await delay(5);
}

const same = (one: Watching, other: Watching): boolean =>
  JSON.stringify(one.received) === JSON.stringify(other.received);

async function compareWatches(its: RawGrpc, own: RawGrpc, steps: readonly Step[]): Promise<void> {
  const both = [new Watching(its), new Watching(own)] as const;
  try {
    for (const each of steps) {
      const newest = await revisionOf(its);
      if (each.kind === "write") {
        // Otherwise etcd cancels a watch of the past that it has not looked at yet.
        if (each.call.path.endsWith("Compact")) {
          await within(() => same(...both));
          await delay(etcdSyncMs);
        }
        await callBoth(its, own, each.call.path, each.call.make(newest));
        continue;
      }
      const isCreation = each.kind === "create";
      const request = isCreation ? each.make(newest) : encode({ 2: encode({ 1: each.id }) });
      if (!isCreation) await within(() => same(...both));
      const before = both[0].answers;
      for (const watching of both) watching.send(request);
      // A request to cancel what is not there has no answer.
      if (isCreation) await within(() => both.every(({ answers }) => answers > before));
      else await within(() => same(...both));
    }
    await within(() => same(...both));
    const sent = both[0].requests.join(", ");
    expect(both[1].received, `after ${sent}`).toEqual(both[0].received);
  } finally {
    for (const watching of both) watching.close();
  }
}

describe.each([["The embedded store", stores.served]])(
  "%s sends the watches of one stream what a real etcd sends",
  (_name, newOwn) => {
    test("with random writes, creations and cancellations", async () => {
      const [its, own] = await Promise.all([stores.etcd(), newOwn()]);
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25, size: "max" }), (steps) =>
          compareWatches(its, own, steps),
        ),
        { numRuns: costlyRuns(120), endOnFailure: true },
      );
    });

    test("to a request with a field of another type than its proto says", async () => {
      const [its, own] = await Promise.all([stores.etcd(), newOwn()]);
      const requests = [
        { 1: encode({ 1: "a", 8: "text" }) },
        { 1: encode({ 1: 7 }) },
        { 2: encode({ 1: "1" }) },
        { 3: 1 },
      ];
      for (const request of requests) {
        const statuses = [its, own].map(async (client) => {
          const call = client.open("/etcdserverpb.Watch/Watch");
          call.send(encode(request));
          call.halfClose();
          return statusOf(await call.response);
        });
        const [theirs, ours] = await Promise.all(statuses);
        expect(ours).toEqual(theirs);
        expect(ours?.code).toBe("13");
      }
    });
  },
);
