import { describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { parseAddress } from "../../../src/client/transport/address.ts";

describe("An address", () => {
  test.each([
    ["127.0.0.1:50051", "ipv4:127.0.0.1:50051", true],
    ["10.1.2.3:1", "ipv4:10.1.2.3:1", false],
    ["localhost:80", "dns:localhost:80", true],
    ["watch.example:65535", "dns:watch.example:65535", false],
    ["[::1]:50051", "ipv6:[::1]:50051", true],
    ["[2001:db8::1]:50051", "ipv6:[2001:db8::1]:50051", false],
    ["unix:/run/watch-fanout.sock", "unix:/run/watch-fanout.sock", true],
  ])("%s is %s; on this machine: %s.", (text, target, loopback) => {
    expect(parseAddress(text)).toEqual({ text, target, loopback });
  });

  test.each([
    "",
    "localhost",
    ":50051",
    "localhost:",
    "localhost:0",
    "localhost:65536",
    "::1:50051",
    "[localhost]:50051",
    "local host:1",
    "a/b:1",
  ])("is not %j; the message shows a valid one.", (text) => {
    expect(() => parseAddress(text)).toThrow(/is not an address\. Write HOST:PORT/);
  });

  test("is given without a scheme; for https the message names the TLS options.", () => {
    expect(() => parseAddress("http://localhost:1")).toThrow(/has a scheme/);
    expect(() => parseAddress("https://localhost:1")).toThrow(
      /set TLS by the option tls \(--tls\)/,
    );
  });
});

test("At least one address is needed.", () => {
  expect(() => connect({ address: [] })).toThrow("No address");
});

test("A client certificate needs its key, and the other way round.", () => {
  const pem = Buffer.from("x");
  for (const tls of [{ cert: pem }, { key: pem }]) {
    expect(() => connect({ address: "localhost:1", tls })).toThrow(/belong together/);
  }
});
