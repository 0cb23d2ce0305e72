import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { describeContract } from "../../contract/backends.ts";
import { Message } from "../../foreign/protobuf.ts";
import fc from "../../property.ts";
import { type RandomRequest, randomRequest } from "./escape-requests.ts";
import { escaped, keys, markedValue, mayDo } from "./escape-rights.ts";
import { EscapeWorld } from "./escape-world.ts";

/** Number of requests for each storage. `npm run rights` makes 10,000. */
const requests = Number(process.env["RIGHTS_REQUESTS"] ?? 750);

/** Number of requests at once. */
const atOnce = 25;

/** The gRPC service whose methods may be denied. */
const guarded = /^\/watchfanout\.v1\./;

/** The responses of a Subscribe stream, with the id that each has. The last may be incomplete. */
function messagesOf(bytes: Buffer): (readonly [number, Buffer])[] {
  const found: (readonly [number, Buffer])[] = [];
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    if (end > bytes.length) break;
    const message = bytes.subarray(at + 5, end);
    found.push([new Message(message).number(1), message]);
    at = end;
  }
  return found;
}

/** The code of the end of a watch; undefined for any other response. */
function endOf(response: Buffer): number | undefined {
  const message = new Message(response);
  return message.has(3) ? new Message(message.bytes(3)).number(1) : undefined;
}

describeContract("No request of a limited caller", (open) => {
  test("yields a byte from outside of its rights, whatever its fields and page tokens", async () => {
    const world = await EscapeWorld.open(open);
    const seen = { denied: 0, allowed: 0, own: 0, streams: 0, deniedWatches: 0, watched: 0 };
    const check = async (batch: readonly RandomRequest[]): Promise<void> => {
      await world.learn();
      const all = await world.call(batch);
      for (const [index, { text, messages, code }] of all.entries()) {
        const { caller, access, also, path, isExact, watches } = batch[index] as RandomRequest;
        if (watches !== undefined) {
          for (const [id, message] of messagesOf(messages)) {
            const asked = watches[id - 1];
            const isAllowed = asked !== undefined && mayDo(caller, asked);
            const what = `watch ${id} of ${caller}, ${JSON.stringify(asked)}`;
            expect(
              escaped(message.toString("latin1"), isAllowed ? asked : undefined),
              what,
            ).toEqual([]);
            const isDenied = endOf(message) === status.PERMISSION_DENIED;
            if (isAllowed) expect(isDenied, what).toBe(false);
            if (isDenied) seen.deniedWatches++;
            if (message.includes("zqxj")) seen.watched++;
          }
          continue;
        }
        const isAllowed =
          access !== undefined &&
          mayDo(caller, access) &&
          (also === undefined || mayDo(caller, also));
        const what = `${caller} ${path} ${JSON.stringify(access)} ended with ${code}`;
        expect(escaped(text, isAllowed ? access : undefined), what).toEqual([]);
        if (!guarded.test(path) || !isExact) continue;
        expect(code === status.PERMISSION_DENIED, what).toBe(!isAllowed);
        if (isAllowed) seen.allowed++;
        else seen.denied++;
        if (text.includes("zqxj")) seen.own++;
        if (code === undefined) seen.streams++;
      }
    };
    await fc.assert(
      fc.asyncProperty(fc.array(randomRequest, { minLength: atOnce, maxLength: atOnce }), check),
      { numRuns: Math.ceil(requests / atOnce), endOnFailure: true },
    );
    if (process.env["RIGHTS_REQUESTS"] !== undefined)
      process.stderr.write(`${JSON.stringify(seen)}\n`);
    // The test is worth nothing if no call gets anything.
    expect(seen.denied).toBeGreaterThan(requests / 5);
    expect(seen.allowed).toBeGreaterThan(requests / 50);
    expect(seen.own).toBeGreaterThan(requests / 100);
    expect(seen.streams).toBeGreaterThan(requests / 200);
    expect(seen.deniedWatches).toBeGreaterThan(requests / 20);
    expect(seen.watched).toBeGreaterThan(requests / 200);
  }, 900_000);
});

describe("The search for escaped bytes", () => {
  const bytes = markedValue("pods", "a/1", 1);

  test.each([
    ["a value without any right", bytes, undefined],
    ["a value of another resource", bytes, { resource: "raw", scope: { prefix: "" } }],
    ["a value of another scope", bytes, { resource: "pods", scope: { prefix: "b/" } }],
    ["a value of another key", bytes, { resource: "pods", scope: { key: "a/2" } }],
    [
      "a key",
      `x${keys.find((key) => key.startsWith("b/z"))}`,
      { resource: "pods", scope: { prefix: "a/" } },
    ],
    ["a resource's name", "hidden-zqxj", { resource: "pods", scope: { prefix: "" } }],
  ] as const)("finds %s", (_what, text, allowed) => {
    expect(escaped(text, allowed)).not.toEqual([]);
  });

  test("does not find what the call asked for", () => {
    expect(escaped(bytes, { resource: "pods", scope: { prefix: "a/" } })).toEqual([]);
    expect(escaped("\u0005b/zqxj-2\u0012", { resource: "pods", scope: { prefix: "b/" } })).toEqual(
      [],
    );
  });
});
