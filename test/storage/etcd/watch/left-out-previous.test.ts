import { status } from "@grpc/grpc-js";
import { afterEach, describe, expect, test } from "vitest";
import type { Turns } from "../../../../src/base/turns.ts";
import type { EtcdClientOptions } from "../../../../src/etcd/client/etcd-client.ts";
import { EtcdStorage } from "../../../../src/storage/etcd/etcd-storage.ts";
import type { WatchRequest } from "../../../../src/storage/storage.ts";
import { StreamReader } from "../../conformance/stream-reader.ts";
import { type Script, type ScriptedWatch, startScriptedEtcd } from "../scripted-etcd.ts";
import { clientOf } from "../source.ts";

const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0)) await close();
});

/** A watch after revision 10 of an etcd that serves the watches with these scripts, in order. */
async function watch(
  scripts: readonly ((stream: ScriptedWatch) => void)[],
  range: Script["range"] = () => 50,
  options: Partial<EtcdClientOptions & WatchRequest> & { readonly together?: number } = {},
): Promise<{ reader: StreamReader; storage: EtcdStorage; starts: number[] }> {
  const starts: number[] = [];
  const etcd = await startScriptedEtcd({
    range,
    watch: (stream) => {
      const script = scripts[Math.min(starts.length, scripts.length - 1)];
      starts.push(stream.startRevision);
      stream.send({ created: true, header: { revision: 50 } });
      script?.(stream);
    },
  });
  const client = clientOf(etcd, options);
  if (options.together !== undefined) takeTogether(client.timeSlices, options.together);
  const storage = new EtcdStorage(client, { prefix: "p/" });
  closings.push(async () => {
    await storage.close();
    await client.close();
    etcd.close();
  });
  const { upTo, concurrent } = options;
  const everything = { scope: { prefix: "" }, withPrevious: true };
  const request: WatchRequest = { ...everything, afterRevision: 10, upTo, concurrent };
  return { reader: new StreamReader(storage, request), storage, starts };
}

/** The first pieces of work wait until this number of them has come, as on a busy machine. */
function takeTogether(timeSlices: Turns, count: number): void {
  const run = timeSlices.run.bind(timeSlices);
  const held: (() => void)[] = [];
  timeSlices.run = (owner, work, signal) => {
    return new Promise((resolve, reject) => {
      held.push(() => void run(owner, work, signal).then(resolve, reject));
      if (held.length < count) return;
      timeSlices.run = run;
      for (const begin of held) begin();
    });
  };
}

/** `p/KEY` at a revision, created at 5. */
function kv(key: string, revision: number, value: string): object {
  return {
    key: Buffer.from(`p/${key}`),
    value: Buffer.from(value),
    create_revision: 5,
    mod_revision: revision,
    version: revision - 4,
  };
}

function events(...events: readonly object[]): (stream: ScriptedWatch) => void {
  return (stream) => stream.send({ header: { revision: 50 }, events });
}

const incomplete = { type: "Put", kv: kv("a", 12, "new") };
const complete = { ...incomplete, prev_kv: kv("a", 11, "old") };
const compactedError = {
  code: status.OUT_OF_RANGE,
  details: "etcdserver: mvcc: required revision has been compacted",
};
const canceledAt = (revision: number) => (stream: ScriptedWatch) =>
  stream.send({ header: { revision: 50 }, canceled: true, compact_revision: revision });

describe("an event without the previous object, which etcd should have sent with it", () => {
  test("is requested again, without an effect on the reader", async () => {
    const { reader, starts } = await watch([events(incomplete), events(complete)]);
    const [event] = await reader.through(12);
    expect(event).toMatchObject({
      type: "MODIFIED",
      object: { value: "new" },
      previous: { value: "old" },
    });
    expect(reader.events.length).toBe(1);
    expect(starts).toEqual([11, 11]);
  });

  test("is requested again from the last complete revision", async () => {
    const first = { type: "Put", kv: kv("b", 11, "1"), prev_kv: kv("b", 9, "0") };
    const { reader, starts } = await watch([
      (stream) => {
        events(first)(stream);
        events(incomplete)(stream);
      },
      events(complete),
    ]);
    const delivered = await reader.through(12);
    expect(delivered.map(({ key, revision }) => [key, revision])).toEqual([
      ["b", 11],
      ["a", 12],
    ]);
    expect(starts).toEqual([11, 12]);
  });

  test("is not skipped where what follows of the past has come before it was looked at", async () => {
    const last = { type: "Put", kv: kv("b", 14, "1"), prev_kv: kv("b", 9, "0") };
    const { reader, starts } = await watch(
      [
        (stream) => {
          events(incomplete)(stream);
          events(last)(stream);
        },
        events(complete, last),
      ],
      undefined,
      { upTo: 14, together: 2 },
    );
    const delivered = await reader.through(14);
    expect(delivered.map(({ key, revision }) => [key, revision])).toEqual([
      ["a", 12],
      ["b", 14],
    ]);
    expect(starts).toEqual([11, 11]);
  });

  test("does not lose a progress request", async () => {
    const { reader, storage } = await watch([
      events(incomplete),
      (stream) => {
        stream.onProgressRequest = () => {
          events(complete)(stream);
          stream.send({ header: { revision: 40 }, watch_id: -1 });
        };
      },
    ]);
    storage.requestProgress();
    expect((await reader.through(40)).length).toBe(1);
  });

  test("ends the stream if it is left out every time", async () => {
    const { reader, starts } = await watch([events(incomplete)]);
    expect(await reader.end()).toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining("keeps leaving out previous objects"),
    });
    expect(starts).toEqual([11, 11, 11, 11]);
    expect(reader.events).toEqual([]);
  });

  const oldest: [string, number, string | undefined][] = [
    ["and says from where on", 30, "30"],
    ["and does not name as the oldest what a member that is behind has", 7, undefined],
  ];
  for (const [name, compactRevision, reported] of oldest) {
    test(`is REVISION_TOO_OLD if it has been compacted, ${name}`, async () => {
      const responses = [50, compactedError];
      const { reader } = await watch(
        [events(incomplete), canceledAt(compactRevision)],
        () => responses.shift() ?? compactedError,
      );
      const end = await reader.end();
      expect(end).toMatchObject({ reason: "REVISION_TOO_OLD" });
      expect(end).toHaveProperty("metadata", {
        requested_revision: "10",
        ...(reported === undefined ? {} : { oldest_revision: reported }),
      });
    });
  }
});

describe("a response about the past above the maximum size", () => {
  const large = {
    type: "Put",
    kv: { ...kv("a", 12, "1"), value: Buffer.alloc(70_000), create_revision: 12 },
  };

  test("ends the watch with HISTORY_LOST", async () => {
    const { reader } = await watch([events(large)], undefined, {
      upTo: 14,
      pastResponseBytes: 65_536,
    });
    expect(await reader.end()).toMatchObject({
      reason: "HISTORY_LOST",
      message: expect.stringContaining("above the maximum size of one response"),
    });
  });

  test.each([
    [1, "14"],
    [2, "HISTORY_LOST"],
    [5, "HISTORY_LOST"],
  ])("is a share of the maximum of all: of %i watches", async (concurrent, outcome) => {
    // Above a quarter of the bound.
    const last = { ...large, kv: { ...large.kv, mod_revision: 14, create_revision: 14 } };
    const { reader } = await watch([events(last)], undefined, {
      ...{ upTo: 14, concurrent, pastResponseBytes: 4 * 65_536 },
    });
    if (outcome === "14") expect(await reader.through(14)).toMatchObject([{ revision: 14 }]);
    else expect(await reader.end()).toMatchObject({ reason: outcome });
  });

  test("is accepted from four watches if it is a quarter, and not from five", async () => {
    const last = { ...large, kv: { ...large.kv, mod_revision: 14, create_revision: 14 } };
    for (const concurrent of [4, 5]) {
      const { reader } = await watch([events(last)], undefined, {
        ...{ upTo: 14, concurrent, pastResponseBytes: 5 * 65_536 },
      });
      if (concurrent === 4) expect(await reader.through(14)).toHaveLength(1);
      else expect(await reader.end()).toMatchObject({ reason: "HISTORY_LOST" });
    }
  });

  test("is accepted on a watch without an end", async () => {
    const { reader } = await watch([events(large)], undefined, { pastResponseBytes: 65_536 });
    expect(await reader.through(12)).toMatchObject([{ key: "a", revision: 12 }]);
  });
});

test("Of the past, two responses are held that are not decoded; the next ones are not read from etcd", async () => {
  const value = Buffer.alloc(1024 ** 2);
  const count = 30;
  let sent = 0;
  const { reader } = await watch(
    [
      (stream) => {
        for (let i = 0; i < count; i++) {
          const changed = { ...kv("a", 11 + i, ""), value };
          const response = {
            header: { revision: 50 },
            events: [{ type: "Put", kv: changed, prev_kv: kv("a", 10 + i, "") }],
          };
          stream.send(response, () => sent++);
        }
      },
    ],
    undefined,
    // Decoding begins only when three have come.
    { upTo: 10 + count, together: 3 },
  );
  const turns = async (): Promise<void> => {
    for (let i = 0; i < 2_000; i++) await new Promise((resolve) => setImmediate(resolve));
  };
  while (sent < 2) await turns();
  await turns();
  expect(sent).toBeLessThan(8);
  expect(reader.events).toEqual([]);
});
