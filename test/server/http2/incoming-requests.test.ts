import { PassThrough } from "node:stream";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import type { ServiceContext } from "../../../src/server/calls/service-context.ts";
import type { Http2Call } from "../../../src/server/http2/http2-call.ts";
import { IncomingRequests } from "../../../src/server/http2/incoming-requests.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import { FakeClock } from "../../fake-clock.ts";
import { framed } from "./raw-connection.ts";

test("Requests that wait to be inflated are charged with their size, also if they arrived at once", async () => {
  const clock = new FakeClock();
  const requestPool = new Ledger();
  const incompleteCalls = new Ledger();
  const limits = { maxRequestBytes: 10_000, requestMs: 60_000 };
  const callerLimits = { callers: {} };
  const context = { clock, requestPool, incompleteCalls, limits, callerLimits };
  const requests = new IncomingRequests(context as unknown as ServiceContext);
  const connection = {};
  const message = gzipSync(Buffer.alloc(1_000));
  const frame = framed(message);
  frame[0] = 1;
  const ends: Promise<unknown>[] = [];
  const read = (): void => {
    const stream = new PassThrough();
    const call = { connection, identity: {}, owner: { caller: {} }, onOver: () => {} };
    requests.read({ stream, encoding: "gzip" }, call as unknown as Http2Call, () => {});
    ends.push(new Promise((resolve) => stream.once("end", resolve)));
    stream.end(frame);
  };
  for (let i = 0; i < 4; i++) read();
  await Promise.all(ends);
  // Two are inflated at once, which are charged with the largest request as well.
  const charged = 4 * (1024 + message.length) + 2 * limits.maxRequestBytes;
  expect(requestPool.of(connection)).toBe(charged);
  // At the end of the turn in which they arrived, incomplete requests are counted.
  clock.advance(0);
  expect(requestPool.of(connection)).toBe(charged);
});
