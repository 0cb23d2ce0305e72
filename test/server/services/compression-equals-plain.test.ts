import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import type { ListRequest } from "../../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import type { ListResponse__Output } from "../../../src/wire/generated/watchfanout/v1/ListResponse.ts";
import type { WatchRequest } from "../../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { podValue } from "../../pod-value.ts";
import fc, { runs } from "../../property.ts";
import { EncodedClient } from "../encoded-client.ts";
import { type Served, serveThings } from "../served.ts";

const { List, Subscribe, Watch } = listWatchService;
const resource = "things";
const keys = Array.from({ length: 40 }, (_, i) => `${"xy"[i % 2]}/${i}`);

interface Requested {
  readonly request: WatchRequest;
  readonly isSubscribe: boolean;
}

/** What a client has got of a watch. */
interface Got {
  readonly responses: WatchResponse__Output[];
  compressed: number;
}

const arbitraryWatch: fc.Arbitrary<Requested> = fc.record({
  isSubscribe: fc.boolean(),
  request: fc.record({
    resource: fc.constant(resource),
    prefix: fc.constantFrom("", "x/"),
    send_initial_events: fc.boolean(),
    include_previous: fc.boolean(),
    view: fc.constantFrom("VIEW_FULL" as const, "VIEW_KEYS" as const),
    delivery: fc.constantFrom("DELIVERY_EVERY_EVENT" as const, "DELIVERY_LATEST_STATE" as const),
  }),
});

const arbitraryList: fc.Arbitrary<ListRequest> = fc.record({
  page_size: fc.nat(20),
  start_key: fc.constantFrom("", "x/3"),
  view: fc.constantFrom("VIEW_FULL" as const, "VIEW_KEYS" as const),
  order: fc.constantFrom(
    ...(["ORDER_KEY_ASCENDING", "ORDER_KEY_DESCENDING"] as const),
    "ORDER_MOD_REVISION_DESCENDING" as const,
  ),
});

/** A value that compresses well or not at all, from nothing to more than a message of 1 MiB holds of them. */
const arbitraryValue: fc.Arbitrary<Buffer> = fc.oneof(
  fc.nat(1_000).map(podValue),
  fc.tuple(fc.nat(255), fc.nat(200_000)).map(([byte, size]) => Buffer.alloc(size, byte)),
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
);

const arbitraryWrites = fc.array(
  fc.uniqueArray(
    fc.tuple(fc.constantFrom(...keys), fc.option(arbitraryValue, { freq: 4, nil: undefined })),
    { minLength: 1, maxLength: 12, selector: ([key]) => key },
  ),
  { minLength: 1, maxLength: 12 },
);

type Write = readonly (readonly [key: string, value: Buffer | undefined])[];

/** The revision of the write. */
async function write({ storage }: Served, entries: Write): Promise<number> {
  const known = new Set(
    (await storage.list({ prefix: "", limit: 0, at: { match: "ANY" } } as never)).items.map(
      ({ key }) => key,
    ),
  );
  const operations = entries.flatMap(([key, value]): Operation[] => {
    if (value !== undefined) return [{ type: "put", key, value }];
    return known.has(key) ? [{ type: "delete", key }] : [];
  });
  if (operations.length > 0) await storage.txn(operations);
  return storage.currentRevision();
}

/** Opens the watch, and reads it until it has reached the revision that `last` resolves to. */
function follow(client: EncodedClient, { request, isSubscribe }: Requested) {
  const got: Got = { responses: [], compressed: 0 };
  const call = isSubscribe
    ? client.open(Subscribe, { add: { id: 1, watch: request } })
    : client.open(Watch, request);
  const next = async (): Promise<WatchResponse__Output> => {
    const { message, isCompressed } = await call.next();
    if (isCompressed) got.compressed++;
    const response = "watch" in message ? message.watch : message;
    got.responses.push(response as WatchResponse__Output);
    return response as WatchResponse__Output;
  };
  const until = async (revision: number): Promise<Got> => {
    while (reachedBy(got) < revision) await next();
    call.cancel();
    return got;
  };
  return { begun: next(), until };
}

function reachedBy({ responses }: Got): number {
  return responses.reduce((most, { revision }) => Math.max(most, Number(revision ?? 0)), 0);
}

/** Every event; of LATEST_STATE what is left after all of them, since which are merged depends on the time. */
function contentOf({ responses }: Got, { delivery }: WatchRequest): unknown {
  const events = responses.flatMap((response) => response.events);
  const history = responses[0]?.history_id;
  const ends = responses.filter(({ initial_events_end }) => initial_events_end).length;
  if (delivery !== "DELIVERY_LATEST_STATE") return { history, ends, events };
  const left = new Map<string, unknown>();
  for (const { type, object } of events) {
    if (type === "EVENT_TYPE_DELETED") left.delete(object?.key ?? "");
    else left.set(object?.key ?? "", object);
  }
  return { history, ends, left: [...left].sort(([a], [b]) => (a < b ? -1 : 1)) };
}

const encodings = [undefined, "gzip", "zstd"] as const;

test("A client gets the same with each encoding as without, of each watch and list", {
  timeout: 240_000,
}, async () => {
  let compressed = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(arbitraryWatch, { minLength: 1, maxLength: 4 }),
      arbitraryWrites,
      arbitraryWrites,
      arbitraryList,
      async (watches, before, after, list) => {
        const served = await serveThings({
          server: { compression: { encodings: ["zstd", "gzip"], minBytes: 64 } },
        });
        const clients = encodings.map(
          (accepted) => new EncodedClient(served.server.port, accepted),
        );
        try {
          for (const entries of before) await write(served, entries);
          const all = watches.map((watch) => ({
            watch,
            followed: clients.map((client) => follow(client, watch)),
          }));
          // The writes follow when the watches are open, so that each begins at the same state.
          await Promise.all(all.flatMap(({ followed }) => followed.map(({ begun }) => begun)));
          for (const entries of after) {
            await write(served, entries);
            await nextTurn();
          }
          const last = await write(served, [["x/last", Buffer.from("last")]]);
          for (const { watch, followed } of all) {
            const [plain, ...others] = await Promise.all(followed.map(({ until }) => until(last)));
            expect(plain?.compressed).toBe(0);
            for (const other of others) {
              expect(contentOf(other, watch.request)).toEqual(
                contentOf(plain as Got, watch.request),
              );
              compressed += other.compressed;
            }
          }
          const lists = await Promise.all(clients.map((client) => allPages(client, list)));
          expect(lists[1]).toEqual(lists[0]);
          expect(lists[2]).toEqual(lists[0]);
        } finally {
          for (const client of clients) client.close();
        }
      },
    ),
    { numRuns: runs(15) },
  );
  expect(compressed).toBeGreaterThan(10);
});

async function allPages(
  client: EncodedClient,
  request: ListRequest,
): Promise<ListResponse__Output[]> {
  const pages: ListResponse__Output[] = [];
  let page_token = "";
  do {
    const { message } = await client.unary(List, { ...request, resource, page_token });
    pages.push(message);
    page_token = message.next_page_token;
  } while (page_token !== "");
  return pages;
}
