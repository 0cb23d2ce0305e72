import { afterAll, beforeAll, expect, test } from "vitest";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import fc from "../property.ts";
import { BareGrpc } from "./bare-grpc.ts";
import { etcdAccount } from "./etcd-account.ts";
import { ForeignClient, type ForeignUnit, type ForeignWatch } from "./foreign-client.ts";
import { encode, type Message } from "./protobuf.ts";
import { type RunningService, serveOver } from "./service-over-etcd.ts";

const resourcePrefix = "/p/";

/** Keys in and out of the resource and its prefixes; the last ones have another order as UTF-16. */
const keys = [
  "/p/a/1",
  "/p/a/2",
  "/p/a",
  "/p/ab",
  "/p/b/\u{ffee}",
  "/p/b/\u{1f388}",
  "/p/",
  "/p0",
  "/o/a/1",
];

/** Every stream must reach the end of a history, which is therefore a write to this key. */
const commonKey = "/p/a/1";

type Write =
  | { readonly op: "put"; readonly key: string; readonly value: string }
  | { readonly op: "delete"; readonly key: string }
  | { readonly op: "delete below"; readonly prefix: string }
  | {
      readonly op: "transaction";
      readonly puts: readonly string[];
      readonly deletes: readonly string[];
    };

const keyArbitrary = fc.constantFrom(...keys);
const writeArbitrary: fc.Arbitrary<Write> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ op: fc.constant("put"), key: keyArbitrary, value: fc.string() }),
  },
  { weight: 2, arbitrary: fc.record({ op: fc.constant("delete"), key: keyArbitrary }) },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constant("delete below"),
      prefix: fc.constantFrom("/p/a", "/p/a/", "/p/b/"),
    }),
  },
  {
    weight: 3,
    // etcd accepts a key once per transaction.
    arbitrary: fc
      .tuple(fc.shuffledSubarray(keys, { minLength: 1 }), fc.nat(keys.length))
      .map(([chosen, puts]) => ({
        op: "transaction" as const,
        puts: chosen.slice(0, puts),
        deletes: chosen.slice(puts),
      })),
  },
);

let etcd: Etcd;
let store: BareGrpc;
let service: RunningService;

beforeAll(async () => {
  etcd = await startEtcd();
  store = new BareGrpc(etcd.url);
  service = await serveOver(etcd.url, `objects=${resourcePrefix}`);
});

afterAll(async () => {
  await service?.stop();
  store?.close();
  await etcd?.stop();
});

/** Applies the step in etcd, by hand-written messages. Returns etcd's revision after it. */
async function write(write: Write): Promise<number> {
  const response = await store.unary(...callOf(write));
  return response.message(1)?.number(3) ?? 0;
}

function callOf(write: Write): [path: string, message: Buffer] {
  switch (write.op) {
    case "put":
      return ["/etcdserverpb.KV/Put", encode({ 1: write.key, 2: write.value })];
    case "delete":
      return ["/etcdserverpb.KV/DeleteRange", encode({ 1: write.key })];
    case "delete below": {
      const end = Buffer.from(write.prefix);
      end.writeUInt8(end.readUInt8(end.length - 1) + 1, end.length - 1);
      return ["/etcdserverpb.KV/DeleteRange", encode({ 1: write.prefix, 2: end })];
    }
    case "transaction": {
      // RequestOp: request_put = 2, request_delete_range = 3; TxnRequest: success = 2.
      const puts = write.puts.map((key) =>
        encode({ 2: encode({ 1: key, 2: "in a transaction" }) }),
      );
      const deletes = write.deletes.map((key) => encode({ 3: encode({ 1: key }) }));
      return ["/etcdserverpb.KV/Txn", encode({ 2: [...puts, ...deletes] })];
    }
  }
}

/** An open stream, and everything that it has received. */
class Recorded {
  readonly watch: ForeignWatch;
  readonly units: ForeignUnit[] = [];
  readonly #stream: AsyncGenerator<ForeignUnit, void, void>;

  private constructor(client: ForeignClient, watch: ForeignWatch) {
    this.watch = watch;
    this.#stream = client.watch("objects", watch);
  }

  /** Resolves when the stream has sent its first revision, or all of its initial state. */
  static async open(client: ForeignClient, watch: ForeignWatch): Promise<Recorded> {
    const recorded = new Recorded(client, watch);
    await recorded.#readOne();
    return recorded;
  }

  async readUpTo(revision: number): Promise<void> {
    while ((this.units.at(-1)?.revision ?? 0) < revision) await this.#readOne();
    await this.#stream.return();
  }

  async #readOne(): Promise<void> {
    const next = await this.#stream.next();
    if (next.done === true) throw new Error("The stream ended.");
    this.units.push(next.value);
  }
}

const scopes: readonly ForeignWatch[] = [{}, { prefix: "a/" }, { prefix: "a" }, { key: "a/1" }];

/** A stream of every kind, for every scope: from now, after each revision, with initial events. */
function openAll(client: ForeignClient, afterRevisions: readonly number[]): Promise<Recorded[]> {
  const positions: readonly ForeignWatch[] = [
    {},
    { sendInitialEvents: true },
    ...afterRevisions.map((afterRevision) => ({ afterRevision })),
  ];
  return Promise.all(
    scopes.flatMap((scope) =>
      positions.map((from) => Recorded.open(client, { ...scope, ...from })),
    ),
  );
}

async function currentRevision(): Promise<number> {
  const response: Message = await store.unary("/etcdserverpb.KV/Range", encode({ 1: "x" }));
  return response.message(1)?.number(3) ?? 0;
}

test("For any history, every stream equals etcd's own history, event for event.", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(writeArbitrary, { maxLength: 8 }),
      fc.array(writeArbitrary, { maxLength: 8 }),
      async (before, after) => {
        // Its own connection: Node's HTTP/2 closes one on which a thousand streams were cancelled in a short time, as
        // a guard against CVE-2023-44487.
        const client = new ForeignClient(service.url);
        const start = await currentRevision();
        const streams = await openAll(client, [start]);
        for (const one of before) await write(one);
        const midway = await currentRevision();
        streams.push(...(await openAll(client, [start, midway])));
        for (const one of after) await write(one);
        const end = await write({ op: "put", key: commonKey, value: "the end" });
        streams.push(...(await openAll(client, [start, midway])));
        await Promise.all(streams.map((stream) => stream.readUpTo(end)));
        client.close();

        const account = await etcdAccount(etcd.url, end);
        for (const { watch, units } of streams) {
          const [first, ...rest] = units;
          const from = first?.revision ?? 0;
          const events = rest.flatMap((unit) => unit.events);
          expect(events, JSON.stringify(watch)).toEqual(account.after(from, resourcePrefix, watch));

          const initial = first?.events.map(({ type, object }) => {
            expect(type).toBe("ADDED");
            return object;
          });
          const state = watch.sendInitialEvents === true;
          expect(first?.initial).toBe(state);
          expect(initial).toEqual(state ? account.stateAt(from, resourcePrefix, watch) : []);
          if (watch.afterRevision !== undefined) expect(from).toBe(watch.afterRevision);

          // Revisions are neither split between batches, nor above the revision of their batch.
          let done = from;
          for (const unit of rest) {
            for (const { object } of unit.events) {
              expect(object.modRevision).toBeGreaterThan(done);
              expect(object.modRevision).toBeLessThanOrEqual(unit.revision);
            }
            done = unit.revision;
          }
        }
      },
    ),
    { numRuns: 30 },
  );
}, 240_000);
