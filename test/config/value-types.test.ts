import { describe, expect, test } from "vitest";
import {
  duration,
  endpoint,
  formatAddress,
  listenAddress,
  size,
} from "../../src/config/value-types.ts";
import fc from "../property.ts";

describe("a duration is the sum of its parts, in milliseconds", () => {
  test.each([
    ["0s", 0],
    ["500ms", 500],
    ["75s", 75_000],
    ["5m", 300_000],
    ["1h30m", 5_400_000],
    ["1.5s", 1_500],
    ["1m1s1ms", 61_001],
    ["596h", 596 * 3_600_000],
  ])("%s", (text, expected) => {
    expect(duration("0s").parse(text)).toBe(expected);
  });
});

describe("a size is in bytes", () => {
  test.each([
    ["1B", 1],
    ["512KiB", 524_288],
    ["64MiB", 67_108_864],
    ["0.5GiB", 536_870_912],
  ])("%s", (text, expected) => {
    expect(size.parse(text)).toBe(expected);
  });
});

describe("an endpoint has a port, and no path", () => {
  test.each([
    ["http://127.0.0.1", "http://127.0.0.1:2379"],
    ["HTTPS://etcd.example/", "https://etcd.example:2379"],
    ["https://etcd:443", "https://etcd:443"],
    ["http://[::1]:02379", "http://[::1]:2379"],
  ])("%s", (text, expected) => {
    expect(endpoint.parse(text)).toBe(expected);
  });
});

test.each([
  ["unix:/run/wf.sock", "/run/wf.sock"],
  ["unix:///run/wf.sock", "/run/wf.sock"],
  ["unix:wf.sock", "wf.sock"],
  ["unix:1", "1"],
])("the Unix socket %s has the path %s", (text, path) => {
  expect(listenAddress.parse(text)).toEqual({ path });
  expect(formatAddress({ path })).toBe(`unix:${path}`);
});

test("formatting and parsing an address are inverse", () => {
  const host = fc.oneof(fc.ipV4(), fc.ipV6(), fc.domain());
  fc.assert(
    fc.property(fc.record({ host, port: fc.integer({ min: 0, max: 65_535 }) }), (address) => {
      expect(listenAddress.parse(formatAddress(address))).toEqual(address);
    }),
  );
});

test("any text is accepted or refused by any type, without an exception", () => {
  const types = [duration("1s"), size, endpoint, listenAddress];
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.constantFrom(...types), (text, type) => {
      type.safeParse(text);
    }),
  );
});
