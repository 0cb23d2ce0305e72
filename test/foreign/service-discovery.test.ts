import { Etcd3 } from "etcd3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { ForeignClient, type ForeignUnit } from "./foreign-client.ts";
import { type RunningService, serveOver } from "./service-over-etcd.ts";

/** The keys of etcd's resolver for gRPC: SERVICE/ADDRESS. */
const target = "services/users";

/** The value that its endpoint manager stores (go.etcd.io/etcd/client/v3/naming/endpoints). */
function endpoint(address: string, weight: number): string {
  return JSON.stringify({ Op: 0, Addr: address, Metadata: { weight } });
}

const address = (i: number) => `10.0.${i >> 8}.${i & 255}:8080`;
const key = (i: number) => `${target}/${address(i)}`;
const stored = (i: number, weight: number) =>
  Buffer.from(endpoint(address(i), weight)).toString("base64");

let etcd: Etcd;
let writer: Etcd3;
let service: RunningService;
let client: ForeignClient;

beforeAll(async () => {
  etcd = await startEtcd();
  writer = new Etcd3({ hosts: etcd.url });
  service = await serveOver(etcd.url, "services=services/");
  client = new ForeignClient(service.url);
});

afterAll(async () => {
  client?.close();
  await service?.stop();
  writer?.close();
  await etcd?.stop();
});

/** Atomic batches up to one at or above the revision. */
async function unitsUpTo(
  units: AsyncIterator<ForeignUnit>,
  revision: number,
): Promise<ForeignUnit[]> {
  const read: ForeignUnit[] = [];
  while ((read.at(-1)?.revision ?? 0) < revision) {
    const next = await units.next();
    if (next.done === true) throw new Error("The watch ended.");
    read.push(next.value);
  }
  return read;
}

describe("Endpoints as etcd's naming resolver writes them, a thousand of them", () => {
  const count = 1_000;

  test("are watched live and listed, byte for byte, by a client that shares no code with the service.", async () => {
    const live = client.watch("services", { prefix: "users/" });
    await live.next();

    let last = 0;
    for (let i = 0; i < count; i++) {
      const response = await writer.put(key(i)).value(endpoint(address(i), i));
      last = Number(response.header.revision);
    }

    const watched = (await unitsUpTo(live, last)).flatMap(({ events }) => events);
    expect(watched.map(({ type, object }) => [type, object.key, object.value])).toEqual(
      Array.from({ length: count }, (_, i) => ["ADDED", `users/${address(i)}`, stored(i, i)]),
    );
    await live.return();

    const { items, pages } = await client.list("services", { prefix: "users/", pageSize: 300 });
    expect(pages).toBe(4);
    expect(items.map((object) => object.key)).toEqual(
      Array.from({ length: count }, (_, i) => `users/${address(i)}`).sort(),
    );
    expect(items.find((object) => object.key === `users/${address(7)}`)?.value).toBe(stored(7, 7));
  });

  test("are the initial state of a client that joins, followed by changes.", async () => {
    const joined = client.watch("services", { prefix: "users/", sendInitialEvents: true });
    const { value: initial } = await joined.next();
    expect(initial?.initial).toBe(true);
    expect(initial?.events).toHaveLength(count);

    await writer.delete().key(key(0)).exec();
    const response = await writer.put(key(1)).value(endpoint(address(1), 0));
    const changes = await unitsUpTo(joined, Number(response.header.revision));
    expect(
      changes.flatMap(({ events }) => events).map(({ type, object }) => [type, object.key]),
    ).toEqual([
      ["DELETED", `users/${address(0)}`],
      ["MODIFIED", `users/${address(1)}`],
    ]);
    await joined.return();
  });

  test("that one transaction changes arrive in one atomic batch.", async () => {
    const live = client.watch("services", { prefix: "users/" });
    await live.next();
    const moved = Array.from({ length: 50 }, (_, i) => 2 * i + 10);
    const { header } = await writer
      .if(key(moved[0] ?? 0), "Version", ">", 0)
      .then(
        ...moved.map((i) => writer.delete().key(key(i))),
        ...moved.map((i) => writer.put(key(i + count)).value(endpoint(address(i), i))),
      )
      .commit();
    const revision = Number(header.revision);
    const units = (await unitsUpTo(live, revision)).filter(({ events }) => events.length > 0);
    expect(units).toHaveLength(1);
    expect(units[0]?.revision).toBe(revision);
    expect(units[0]?.events.map(({ type, object }) => [type, object.modRevision])).toEqual([
      ...moved.map(() => ["DELETED", revision]),
      ...moved.map(() => ["ADDED", revision]),
    ]);
    await live.return();
  });
});
