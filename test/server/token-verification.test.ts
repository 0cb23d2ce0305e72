import type { JWTVerifyGetKey } from "jose";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { parseKeySet, RemoteKeySet } from "../../src/identity/key-set.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { Issuer, keySetContent } from "../identity/issuer.ts";
import {
  authority,
  bearer,
  clientWith,
  issuer,
  list,
  resource,
  serveAuthenticated,
} from "./authenticated-calls.ts";
import { ManualTimers } from "./limits/manual-timers.ts";

const next = await Issuer.create("next");
/** Makes a connection that no other client shares. */
const otherCertificate = await authority.issue();
const exp = Date.now() / 1_000 + 3_600;

/** Keys of an issuer whose first response has its key, and whose further responses the test provides. */
async function slowIssuer() {
  const clock = new ManualTimers();
  const requests: PromiseWithResolvers<Buffer>[] = [];
  const keys = new RemoteKeySet({
    url: new URL("https://issuer.example/keys"),
    clock,
    logger: pino({ level: "silent" }),
    fetch: (_url, _maxBytes, signal) => {
      const request = Promise.withResolvers<Buffer>();
      requests.push(request);
      signal.addEventListener("abort", () => request.reject(signal.reason));
      return request.promise;
    },
  });
  onTestFinished(() => keys.close());
  requests[0]?.resolve(keySetContent(issuer));
  while (keys.counts.succeeded === 0) await new Promise((resolve) => setImmediate(resolve));
  // An unknown key is requested.
  clock.advance(10_000);
  return { keys, clock, requests };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

describe("While the token issuer does not respond", () => {
  test("calls with a new key wait, and no other call waits for them", async () => {
    const { keys, requests } = await slowIssuer();
    const served = await serveAuthenticated({ keys, clientAuth: "request" });
    const { server, authenticators } = served;
    const client = clientWith(server.port);
    const unknown = await Promise.all(
      Array.from({ length: 64 }, (_, i) => next.sign({ exp, jti: `${i}` })),
    );
    const waiting = unknown.map((token) => list(client, bearer(token)));
    await until(() => server.stats().requests.bytes >= 64);
    await until(() => requests.length === 2);
    // On the same connection, and on others.
    await list(client, bearer("static"));
    await list(client);
    await list(clientWith(server.port, await authority.issue({ cn: "machine-2" })));
    for (let i = 0; i < 20; i++) {
      await list(client, bearer(await issuer.sign({ exp, jti: `${i}`, sub: "known" })));
    }
    expect(authenticators.identities.map(({ name }) => name)).toEqual([
      ...["machine", "anonymous", "machine-2"],
      ...Array.from({ length: 20 }, () => "known"),
    ]);
    requests[1]?.resolve(keySetContent(issuer, next));
    expect(await Promise.all(waiting)).toHaveLength(64);
    expect(requests).toHaveLength(2);
    expect(authenticators.counts).toMatchObject({ jwt: 84, refused: 0 });
  });

  test("they end when the request for the keys has had its time, with the keys from before", async () => {
    const { keys, clock, requests } = await slowIssuer();
    const { client, server, authenticators } = await serveAuthenticated({ keys });
    const waiting = list(client, bearer(await next.sign({ exp })));
    await until(() => server.stats().requests.bytes > 0 && requests.length === 2);
    clock.advance(5_000);
    await expect(waiting).rejects.toThrow("signed with a key that the issuer does not have");
    expect(authenticators.counts.refused).toBe(1);
  });

  test("one that its client cancels is not handled", async () => {
    const { keys, requests } = await slowIssuer();
    const { client, server } = await serveAuthenticated({ keys });
    const watch = client.watch({ resource }, bearer(await next.sign({ exp })));
    await until(() => server.stats().requests.bytes > 0 && requests.length === 2);
    watch.cancel();
    await until(() => server.stats().requests.bytes === 0);
    requests[1]?.resolve(keySetContent(issuer, next));
    await list(client, bearer(await next.sign({ exp })));
    expect(server.openStreams).toBe(0);
  });

  test("their tokens are bounded in bytes per connection: it loses its own, and others continue", async () => {
    const { keys, requests } = await slowIssuer();
    const { server } = await serveAuthenticated({ keys, clientAuth: "request" });
    const [client, other] = [clientWith(server.port), clientWith(server.port, otherCertificate)];
    const token = await next.sign({ exp, padding: "x".repeat(11_000) });
    const ends: unknown[] = [];
    const waiting = Array.from({ length: 560 }, () =>
      list(client, bearer(token)).catch((error: unknown) => void ends.push(error)),
    );
    await until(() => ends.length > 0);
    expect(ends[0]).toMatchObject({
      reason: "TOO_MANY_STREAMS",
      metadata: { limit: String(8 * 1024 ** 2) },
    });
    expect(ends.length).toBeLessThan(560);
    const ofOther = list(other, bearer(await next.sign({ exp, sub: "other" })));
    await until(() => requests.length === 2);
    requests[1]?.resolve(keySetContent(issuer, next));
    await Promise.all([...waiting, ofOther]);
    await list(client, bearer(token));
  });
});

test("Of tokens that have to be verified, 16 are at once, and connections take turns", async () => {
  const known = parseKeySet(keySetContent(issuer));
  const verified: (() => void)[] = [];
  /** Whose verifications have begun, in order. */
  const begun: unknown[] = [];
  const slow: JWTVerifyGetKey = async (header, token) => {
    begun.push(JSON.parse(Buffer.from(String(token.payload), "base64url").toString()).sub);
    await new Promise<void>((resolve) => verified.push(resolve));
    return known(header, token);
  };
  const keys = { find: slow, onChange: () => {} };
  const { server } = await serveAuthenticated({ keys, clientAuth: "request" });
  const [client, other] = [clientWith(server.port), clientWith(server.port, otherCertificate)];
  const flood = await Promise.all(
    Array.from({ length: 60 }, (_, i) => issuer.sign({ exp, jti: `${i}`, sub: "flood" })),
  );
  const calls = flood.map((token) => list(client, bearer(token)));
  const each = listWatchService.List.requestSerialize({ resource }).length;
  await until(() => server.stats().requests.bytes === flood.length * each);
  expect(verified).toHaveLength(16);
  calls.push(list(other, bearer(await issuer.sign({ exp, sub: "other" }))));
  await until(() => server.stats().requests.bytes === calls.length * each);
  expect(verified).toHaveLength(16);
  for (let turn = 0; turn < flood.length + 1; turn++) {
    await until(() => verified[turn] !== undefined);
    verified[turn]?.();
  }
  await Promise.all(calls);
  // Behind the 16, and at most one of the connection that had waited for longer.
  expect(begun.indexOf("other")).toBeGreaterThanOrEqual(16);
  expect(begun.indexOf("other")).toBeLessThanOrEqual(17);
});
