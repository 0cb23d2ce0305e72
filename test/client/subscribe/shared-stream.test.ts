import { EventEmitter } from "node:events";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { Connection } from "../../../src/client/calls/connection.ts";
import { SharedStream } from "../../../src/client/subscribe/shared-stream.ts";
import type { BeginCall, Transport } from "../../../src/client/transport/transport.ts";
import type { SubscribeRequest } from "../../../src/wire/generated/watchfanout/v1/SubscribeRequest.ts";

/** The requests of a call, of which no further one is taken while `writableNeedDrain`. */
class Requests extends EventEmitter {
  writableNeedDrain = false;
  readonly written: SubscribeRequest[] = [];

  write(request: SubscribeRequest): void {
    this.written.push(request);
  }
}

test("Credit that a server does not take waits as one request for each watch, and not for one that is over.", async () => {
  const requests = new Requests();
  const closing = new AbortController();
  const connection = {
    hasRequestStreams: true,
    async *stream(begin: BeginCall<unknown>, signal: AbortSignal) {
      const bidiStream = (_: unknown, onBegun: (requests: Requests) => void) => onBegun(requests);
      begin({ bidiStream } as unknown as Transport, {}, signal);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    },
  } as unknown as Connection;
  const stream = new SharedStream({
    ...{
      connection,
      clock: systemClock,
      credit: { messages: 2, bytes: 100 },
      closing: closing.signal,
    },
    ...{ onResponse: () => {}, onFull: () => {}, onEnd: () => {} },
  });
  const watches = [stream.add({}), stream.add({})] as const;
  requests.written.length = 0;
  stream.grant(watches[0], { messages: 1, bytes: 5 });
  expect(requests.written).toEqual([{ grant: { id: 1, messages: 1, bytes: 5 } }]);
  requests.writableNeedDrain = true;
  for (let i = 0; i < 100; i++)
    for (const each of watches) stream.grant(each, { messages: 1, bytes: 3 });
  expect(requests.written).toHaveLength(1);
  watches[1].close();
  requests.writableNeedDrain = false;
  requests.emit("drain");
  expect(requests.written.slice(1)).toEqual([
    { remove: { id: 2 } },
    { grant: { id: 1, messages: 100, bytes: 300 } },
  ]);
  closing.abort();
  await nextTurn();
});
