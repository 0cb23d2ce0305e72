import { expect, test } from "vitest";
import { parseTokenFile, tokenDigest } from "../../src/identity/token-file.ts";
import { healthService, listWatchService, writeService } from "../../src/wire/services.ts";
import { type Authenticated, issuer, resource, serveAuthenticated } from "./authenticated-calls.ts";
import { framed, RawConnection } from "./http2/raw-connection.ts";

const [{ Watch }, { Put }, { Check }] = [listWatchService, writeService, healthService];
const requests = [
  ["watch", Watch.path, Watch.requestSerialize({ resource })],
  ["write", Put.path, Put.requestSerialize({ resource, key: "a", value: Buffer.from("1") })],
] as const;

const expiresInMs = 60_000;

const lapses = [
  ["is removed", "static", ({ tokens }: Authenticated) => tokens.replace(others)],
  [
    "expires",
    "jwt",
    ({ time }: Authenticated) => {
      time.now += expiresInMs;
    },
  ],
] as const;
const others = parseTokenFile(Buffer.from(`sha256:${tokenDigest("other")} machine`));

test.each(
  requests.flatMap(([what, ...request]) =>
    lapses.map(([when, ...lapse]) => [what, when, ...request, ...lapse] as const),
  ),
)("A %s whose request arrives after its token %s has no effect", async (...given) => {
  const [, , path, message, source, lapse] = given;
  const served = await serveAuthenticated();
  const { server, storage, time } = served;
  const before = await storage.currentRevision();
  const exp = Math.floor((time.now + expiresInMs) / 1_000);
  const token = source === "jwt" ? await issuer.sign({ exp }) : "static";
  const raw = new RawConnection(server.port);
  // A token that is not known yet is verified first.
  const authorization = `Bearer ${token}`;
  const check = (): Promise<{ code: number | undefined }> =>
    raw.call(Check.path, Check.requestSerialize({ service: "" }), { authorization }).drain().ended;
  expect(await check()).toMatchObject({ code: 0 });
  const call = raw.open(path, { authorization }).drain();
  // The server has got the headers of the call once it answers a later one.
  expect(await check()).toMatchObject({ code: 0 });
  lapse(served);
  call.stream.end(framed(message));
  expect(await call.ended).toMatchObject({ code: 16 });
  expect(server.openStreams).toBe(0);
  expect(await storage.currentRevision()).toBe(before);
});
