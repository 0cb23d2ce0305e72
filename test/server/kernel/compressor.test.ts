import { randomBytes } from "node:crypto";
import { gunzipSync } from "node:zlib";
import { beforeEach, describe, expect, it } from "vitest";
import {
  type CompressedParts,
  Compressor,
  type SourceKind,
} from "../../../src/server/kernel/compressor.ts";
import type { Encoding } from "../../../src/wire/encoding.ts";
import { FakeClock } from "../../fake-clock.ts";

const kind: SourceKind<Buffer> = { sizeOf: ({ length }) => length, bytesOf: (bytes) => bytes };
const mebibyte = 1024 ** 2;
const owner = {};

let clock: FakeClock;
let compressor: Compressor;
let gzip: Encoding;

beforeEach(() => {
  clock = new FakeClock();
  compressor = new Compressor(clock, { encodings: ["gzip"] });
  gzip = compressor.encodingFor("gzip") as Encoding;
});

/** The parts, and whether the response had to wait for them. */
function partsOf(
  ...sources: readonly Buffer[]
): Promise<{ parts: CompressedParts; waited: boolean }> {
  return new Promise((resolve) => {
    const done = (waited: boolean) => (parts: CompressedParts) => resolve({ parts, waited });
    const parts = compressor.parts(gzip, sources, kind, owner, done(true));
    if (parts !== undefined) done(false)(parts);
  });
}

const text = (bytes: number, letter = "a"): Buffer => Buffer.alloc(bytes, letter);

describe("The encoding for a client", () => {
  it.each([
    ["identity,deflate,gzip", ["gzip", "zstd"], "gzip"],
    ["identity, deflate, gzip", ["gzip"], "gzip"],
    ["gzip,zstd", ["zstd", "gzip"], "zstd"],
    ["zstd", ["gzip", "zstd"], "zstd"],
    ["identity", ["gzip"], undefined],
    ["deflate,snappy,gzip-9", ["gzip"], undefined],
    ["", ["gzip"], undefined],
    [`gzip${",".repeat(300)}`, ["gzip"], undefined],
    [undefined, ["gzip"], undefined],
  ] as const)("that accepts %j of a server with %j is %s", (accepted, encodings, name) => {
    const { name: chosen } = new Compressor(clock, { encodings }).encodingFor(accepted) ?? {};
    expect(chosen).toBe(name);
  });
});

describe("A part", () => {
  it("is compressed once for all responses that have it, also at the same time", async () => {
    const source = text(10_000);
    const both = await Promise.all([partsOf(source), partsOf(source)]);
    expect(both.map(({ waited }) => waited)).toEqual([true, true]);
    const [part] = both[0].parts;
    expect(gunzipSync((part?.frame ?? source).subarray(5))).toEqual(source);
    const later = await partsOf(source);
    expect(later.waited).toBe(false);
    expect(later.parts[0]).toBe(part);
    expect(both[1].parts[0]).toBe(part);
    expect(compressor.stats().results).toMatchObject({ compressed: 1 });
  });

  it("is sent as it is if it is small, at once", async () => {
    expect(await partsOf(text(4_095))).toEqual({ parts: [undefined], waited: false });
    expect(compressor.stats().results).toMatchObject({ compressed: 0 });
  });

  it("is sent as it is if it would not be an eighth smaller, at once from then on", async () => {
    const source = randomBytes(10_000);
    expect(await partsOf(source)).toEqual({ parts: [undefined], waited: true });
    expect(await partsOf(source)).toEqual({ parts: [undefined], waited: false });
    expect(compressor.stats()).toMatchObject({ cachedBytes: 0, results: { incompressible: 1 } });
  });

  it("is waited for by a response with others that are ready", async () => {
    const [first, second] = [text(10_000), text(10_000, "b")];
    await partsOf(first);
    const { parts, waited } = await partsOf(first, text(10), second);
    expect(waited).toBe(true);
    expect(parts.map((part) => part?.plainBytes)).toEqual([10_000, undefined, 10_000]);
  });

  it("that takes more than 100 ms is sent as it is, and compressed for later responses", async () => {
    const source = text(10_000);
    const first = partsOf(source);
    clock.advance(99);
    expect(compressor.stats().results.late).toBe(0);
    clock.advance(1);
    expect(await first).toEqual({ parts: [undefined], waited: true });
    expect(await partsOf(source)).toEqual({ parts: [undefined], waited: false });
    while (compressor.stats().results.compressed === 0) await new Promise(setImmediate);
    const { parts, waited } = await partsOf(source);
    expect([waited, parts[0]?.plainBytes]).toEqual([false, 10_000]);
  });
});

describe("What waits to be compressed", () => {
  it("is bounded in bytes: more is sent as it is, at once, until some of it is done", async () => {
    const waiting = Array.from({ length: 16 }, () => partsOf(text(mebibyte)));
    expect(await partsOf(text(mebibyte))).toEqual({ parts: [undefined], waited: false });
    expect(compressor.stats().results.pressure).toBe(1);
    for (const { parts } of await Promise.all(waiting)) expect(parts[0]).toBeDefined();
    expect((await partsOf(text(mebibyte))).parts[0]).toBeDefined();
  });

  it("is bounded in number: of the caller that has most", async () => {
    const all = Array.from({ length: 300 }, () => partsOf(text(4_096)));
    const done = await Promise.all(all);
    const refused = done.filter(({ parts }) => parts[0] === undefined).length;
    // Two are compressed at once, and 256 wait.
    expect(refused).toBe(300 - 258);
    expect(compressor.stats().results).toMatchObject({ compressed: 258, pressure: refused });
  });
});

describe("Compressed parts", () => {
  it("are bounded in bytes: the least recently used go first", async () => {
    const bits = Buffer.from(randomBytes(mebibyte).map((byte) => byte % 2));
    let made = 0;
    // Of eight bits one is left, about.
    const noisy = (): Buffer => {
      const bytes = Buffer.from(bits);
      bytes.writeUInt32LE(made++);
      return bytes;
    };
    const first = noisy();
    const second = noisy();
    await partsOf(first);
    await partsOf(second);
    for (let i = 0; i < 80; i++) {
      await partsOf(noisy());
      expect(compressor.stats().cachedBytes).toBeLessThanOrEqual(16 * mebibyte);
      expect((await partsOf(first)).waited).toBe(false);
    }
    expect(compressor.stats().cachedBytes).toBeGreaterThan(14 * mebibyte);
    expect((await partsOf(second)).waited).toBe(true);
  });

  it("that several responses use stay, however many are used once", async () => {
    // Of eight bits six are left, about.
    const bytes = randomBytes(mebibyte).map((byte) => byte % 64);
    const source = (i: number): Buffer => Buffer.concat([bytes, Buffer.of(i)]);
    const shared = [0, 1, 2, 3].map(source);
    for (const each of [...shared, ...shared]) await partsOf(each);
    for (let i = 4; i < 28; i++) expect((await partsOf(source(i))).parts[0]).toBeDefined();
    expect(compressor.stats().cachedBytes).toBeLessThanOrEqual(16 * mebibyte);
    for (const each of shared) expect((await partsOf(each)).waited).toBe(false);
  });

  it("are dropped when no response has used them for 5 to 10 s", async () => {
    const source = text(10_000);
    await partsOf(source);
    clock.advance(5_000);
    await partsOf(source);
    clock.advance(5_000);
    expect(compressor.stats().cachedBytes).toBeGreaterThan(0);
    clock.advance(5_000);
    expect(compressor.stats().cachedBytes).toBe(0);
    expect((await partsOf(source)).waited).toBe(true);
  });
});
