import { once } from "node:events";
import {
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type BareCall, BareGrpc, BareStatus } from "./bare-grpc.ts";

describe("A bare call that ends with an error", () => {
  let server: Http2Server;
  let client: BareGrpc;
  let call: BareCall;
  let connection: Socket;
  let session: ServerHttp2Session;
  let stream: ServerHttp2Stream;

  beforeEach(async () => {
    server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    client = new BareGrpc(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const accepted = once(server, "connection");
    const opened = once(server, "stream");
    call = client.call("/package.Service/Method", Buffer.of());
    [connection] = (await accepted) as [Socket];
    [stream] = (await opened) as [ServerHttp2Stream];
    stream.on("error", () => {});
    session = stream.session as ServerHttp2Session;
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "14" }));
  });

  afterEach(() => {
    client.close();
    server.close();
  });

  it("gives its messages before the status", async () => {
    stream.write(message(1));
    stream.end(message(2));
    expect(await read(call)).toEqual({ messages: [1, 2], status: { code: 14, isCutOff: false } });
  });

  it("says that messages may be missing if the connection was reset before they were read", async () => {
    stream.write(message(1));
    const reset = async (): Promise<void> => {
      stream.end(message(2));
      await once(stream, "finish");
      // The client's answer shows that it has the message and the status.
      await new Promise<void>((resolve) => session.ping(() => resolve()));
      connection.resetAndDestroy();
      await client.whenClosed();
    };
    expect(await read(call, reset)).toEqual({
      messages: [1],
      status: { code: 14, isCutOff: true },
    });
  });
});

/** Reads everything, and calls `afterFirst` after the first message, before the next one is read. */
async function read(call: BareCall, afterFirst?: () => Promise<void>) {
  const messages: (number | undefined)[] = [];
  try {
    for await (const [byte] of call) {
      messages.push(byte);
      if (messages.length === 1) await afterFirst?.();
    }
  } catch (error) {
    if (!(error instanceof BareStatus)) throw error;
    return { messages, status: { code: error.code, isCutOff: error.isCutOff } };
  }
  return { messages, status: undefined };
}

/** A message of one byte, with gRPC's prefix. */
function message(byte: number): Buffer {
  return Buffer.of(0, 0, 0, 0, 1, byte);
}
