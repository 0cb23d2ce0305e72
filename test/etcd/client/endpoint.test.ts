import { sensitiveHeaders } from "node:http2";
import { expect, test } from "vitest";
import { identified } from "../../../src/etcd/client/call-headers.ts";
import { addressOf, urlOf } from "../../../src/etcd/client/upstream-connection.ts";

test("An endpoint is an address, or the socket of a main process", () => {
  expect(addressOf("unix:/run/x/main.sock")).toEqual({ path: "/run/x/main.sock" });
  expect(urlOf("unix:/run/x/main.sock")).toBe("http://localhost");
  expect(urlOf("https://a:1")).toBe("https://a:1");
});

test("Another watch-fanout may be at a socket with TLS", () => {
  expect(addressOf("https://unix:/run/x.sock")).toEqual({ path: "/run/x.sock" });
  expect(urlOf("https://unix:/run/x.sock")).toBe("https://localhost");
  // A host of this name.
  expect(addressOf("https://unix:2379")).toEqual({ host: "unix", port: 2379 });
});

test("A relay has its own token at the next tier, and that of its client is for etcd", () => {
  const own = () => "own";
  const path = { ":path": "/x" };
  expect(identified({ ...path }, own)).toMatchObject({ ...path, authorization: "Bearer own" });
  expect(identified({ authorization: "client" }, own)).toMatchObject({
    authorization: "Bearer own",
    token: "client",
  });
  // etcd prefers `token`, too.
  expect(identified({ authorization: "one", token: "two" }, own)["token"]).toBe("two");
});

test("Nothing that a client sends names the relay to the next tier", () => {
  const forged = { authorization: "Bearer forged", "x-forwarded-client-cert": "Hash=0" };
  const headers = identified(forged, () => undefined);
  expect(headers).toEqual({ token: "Bearer forged", [sensitiveHeaders]: expect.anything() });
});

test("What a client has sent is not changed: the headers of a stream are used for several calls", () => {
  const headers = { authorization: "client" };
  identified(headers, () => "own");
  expect(headers).toEqual({ authorization: "client" });
});
