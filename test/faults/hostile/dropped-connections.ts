import type { Socket } from "node:net";
import type { AttackSession, Attacks } from "./attack.ts";
import { frame, preface } from "./bare-sockets.ts";
import { paths } from "./requests.ts";

const connections = 5;
/** Of each connection: almost as many as it may have. */
const calls = 9_900;
const callsPerWrite = 300;

const type = { headers: 1, ping: 6 } as const;
const flag = { ack: 1, endOfHeaders: 4 } as const;

/** A header as a literal (RFC 7541, 6.2.2), so that no connection has a table of its own. */
function header(name: string, value: string): Buffer {
  const [encodedName, encodedValue] = [Buffer.from(name), Buffer.from(value)];
  return Buffer.concat([
    Buffer.of(0, encodedName.length),
    encodedName,
    Buffer.of(encodedValue.length),
    encodedValue,
  ]);
}

const headers = Buffer.concat([
  header(":method", "POST"),
  header(":scheme", "http"),
  header(":path", paths.get),
  header(":authority", "a"),
  header("content-type", "application/grpc"),
  header("te", "trailers"),
]);

/** Opens calls and sends nothing on them. Resolves when the server has taken in all of them, or has closed the connection. */
async function openCalls(session: AttackSession): Promise<Socket> {
  const socket = session.dial(session.target.grpcPort);
  let received = Buffer.alloc(0);
  const taken = new Promise<void>((resolve) => {
    socket.once("close", () => resolve());
    socket.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      // Whole frames, of which only the response to the PING matters.
      while (received.length >= 9 && received.length >= 9 + received.readUIntBE(0, 3)) {
        if (received[3] === type.ping && received[4] === flag.ack) resolve();
        received = received.subarray(9 + received.readUIntBE(0, 3));
      }
    });
  });
  socket.write(preface);
  let opened: Buffer[] = [];
  await session.times(calls, callsPerWrite, (index) => {
    opened.push(frame(type.headers, headers, 2 * index + 1, flag.endOfHeaders));
    if (opened.length < callsPerWrite) return;
    socket.write(Buffer.concat(opened));
    opened = [];
  });
  socket.write(Buffer.concat([...opened, frame(type.ping, Buffer.alloc(8), 0)]));
  await session.orAborted(taken);
  return socket;
}

/** Connections that have as many calls as they may, and end. */
export const droppedConnections: Attacks = {
  /**
   * A server that closes all calls of a connection at once does nothing else meanwhile. One that bounds calls by
   * connection holds those of all connections until then.
   */
  "connections dropped with incomplete calls": {
    ...{ weight: 3, mayHold: 120 },
    run: async (session) => {
      const sockets = await session.orAborted(
        Promise.all(Array.from({ length: connections }, () => openCalls(session))),
      );
      // The server pauses connections that open calls fast, and sees the end of one only when it reads again.
      await session.pause(1_500);
      for (const socket of sockets) socket.resetAndDestroy();
      await session.pause(1_000);
    },
  },
};
