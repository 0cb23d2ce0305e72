import { once } from "node:events";
import { performServerHandshake, type ServerHttp2Session } from "node:http2";
import { type AddressInfo, createServer } from "node:net";
import { onTestFinished } from "vitest";
import type { Clock } from "../../../../src/base/clock.ts";
import {
  FramedConnection,
  FramingContext,
} from "../../../../src/server/http2/frames/framed-connection.ts";

/** Serves HTTP/2 on framed connections, with no gRPC. Returns the port. */
export async function serveFramed(
  clock: Clock,
  onSession: (session: ServerHttp2Session, framed: FramedConnection) => void,
  maxStreams: number = 10_000,
): Promise<number> {
  const context = new FramingContext(clock, maxStreams);
  const server = createServer((socket) => {
    const framed = new FramedConnection(socket, context);
    const session = performServerHandshake(framed, {
      maxSessionMemory: 1_000,
      streamResetBurst: 1e6,
    });
    session.on("error", () => {});
    framed.begin(session);
    onSession(session, framed);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}
