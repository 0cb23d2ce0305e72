import { compressionAlgorithms } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { defaultMaxMessageBytes } from "../../../src/client/calls/connection.ts";
import type { Client } from "../../../src/client/client.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { client, server, serverWith } from "../opened.ts";
import type { Script } from "../scripted-server.ts";
import { wireEvent, wireObject, wireResponse } from "../wire-messages.ts";

const kib = 1024;
const mib = 1024 ** 2;

/** A server whose responses each hold one value of this many zero bytes. */
function responding(bytes: number): Script {
  const object = { ...wireObject("k", 5), value: Buffer.alloc(bytes) };
  const found = { revision: "9", object, history_id: "h" };
  return {
    get: (_, callback) => callback(null, found),
    list: (_, callback) =>
      callback(null, { revision: "9", items: [object], next_page_token: "", history_id: "h" }),
    put: (_, callback) => callback(null, found),
    delete: (_, callback) => callback(null, found),
    watch: (call) => call.write(wireResponse(9, [{ ...wireEvent("ADDED", "k", 5), object }])),
  };
}

const compressed = {
  "grpc.default_compression_algorithm": compressionAlgorithms.gzip,
  // It compresses the zeros to a few bytes, so only the decompressed size bounds them.
  "grpc.max_send_message_length": -1,
};

const reads: readonly (readonly [string, (db: Client) => Promise<unknown>])[] = [
  ["an object", (db) => db.get("r", "k")],
  ["a page", (db) => db.page("r")],
  ["a watch", (db) => db.watch("r").next()],
];

describe("One message", () => {
  test.each(reads)("is refused beyond its bound: %s", async (_name, read) => {
    const db = client(await server(responding(65 * kib)), { maxMessageBytes: 64 * kib });
    await expect(read(db)).rejects.toMatchObject({
      reason: "VALUE_TOO_LARGE",
      message: expect.stringMatching(/65536 bytes.*maxMessageBytes/),
    });
  });

  test.each(reads)("is refused when it inflates beyond its bound: %s", async (_name, read) => {
    const address = await serverWith(compressed, responding(4 * mib));
    const db = client(address, { maxMessageBytes: 64 * kib });
    await expect(read(db)).rejects.toMatchObject({
      reason: "VALUE_TOO_LARGE",
      message: expect.stringMatching(/65536 bytes.*maxMessageBytes/),
    });
  });

  test.each([
    ["a put", (db: Client) => db.put("r", "k", Buffer.from("v"))],
    ["a delete", (db: Client) => db.delete("r", "k")],
  ])("that answers a write leaves its outcome unknown: %s", async (_name, write) => {
    const db = client(await server(responding(65 * kib)), { maxMessageBytes: 64 * kib });
    await expect(write(db)).rejects.toMatchObject({ reason: "OUTCOME_UNKNOWN" });
  });

  test("may be of 32 MiB by default, and not larger", async () => {
    const within = client(await server(responding(31 * mib)));
    expect((await within.get("r", "k")).object.valueBytes).toBe(31 * mib);
    const beyond = client(await server(responding(defaultMaxMessageBytes)));
    await expect(beyond.get("r", "k")).rejects.toMatchObject({ reason: "VALUE_TOO_LARGE" });
  });
});

describe("An object that came in a large message", () => {
  /** Beside the object: 1 MiB that the client does not use. */
  const padding = { ...wireObject("padding", 6), value: Buffer.alloc(mib) };
  const object = wireObject("k", 5, "v");
  const held = ({ content }: StoredObject): number => content.buffer.byteLength;

  test.each([
    ["on a page", async (db: Client) => (await db.page("r")).items[0], 64 * kib],
    [
      "on a watch",
      async (db: Client) => (await db.watch("r").next()).value?.events[0]?.object,
      2 * kib,
    ],
  ])("does not keep it in memory: %s", async (_name, read, most) => {
    const items = [object, padding];
    const script: Script = {
      list: (_, callback) =>
        callback(null, { revision: "9", items, next_page_token: "", history_id: "h" }),
      watch: (call) =>
        call.write(
          wireResponse(
            9,
            items.map((each) => ({ ...wireEvent("ADDED", each.key, 5), object: each })),
          ),
        ),
    };
    const found = await read(client(await server(script)));
    if (found === undefined) throw new Error("The object did not come.");
    expect(found.key).toBe("k");
    expect(Buffer.from(found.value).toString()).toBe("v");
    expect(held(found)).toBeLessThanOrEqual(most);
  });
});

describe("A stream", () => {
  test("that is not read holds its server back", async () => {
    const messages = 400;
    let written = 0;
    const value = Buffer.alloc(64 * kib);
    const address = await server({
      ...responding(1),
      watch: (call) => {
        const next = (): void => {
          if (written === messages) return;
          const revision = ++written;
          const object = { ...wireObject("k", revision), value };
          const event = { ...wireEvent("MODIFIED", "k", revision), object };
          call.write(wireResponse(revision, [event]), next);
        };
        next();
      },
    });
    const db = client(address);
    const units = db.watch("r");
    await units.next();
    // Whatever else the client requests meanwhile.
    for (let i = 0; i < 100; i++) await db.get("r", "k");
    expect(written).toBeLessThan(40);
    let last = 0;
    while (last < messages) last = (await units.next()).value?.revision ?? messages;
    expect(written).toBe(messages);
    await units.return();
  });
});
