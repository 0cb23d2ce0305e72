import type { AttackSession, Attacks } from "./attack.ts";
import { gzipEncoding, maxRequestBytes, paths } from "./requests.ts";

const calls = 80;
const mayHold = 80;

/** The head of a message of this size, and as much of it as leaves one byte to come. */
function allButOneByte(bytes: number): Buffer {
  const sent = Buffer.alloc(5 + bytes - 1);
  sent.writeUInt32BE(bytes, 1);
  return sent;
}

/** As large as they may be, and then smaller and smaller ones, to fill the last corner of a pool. */
const largest = Array.from({ length: calls }, () => maxRequestBytes);
const smaller = Array.from({ length: 15 }, (_, i) => maxRequestBytes / 2 ** (i + 1));
const requests = [...largest, ...smaller.flatMap((bytes) => [bytes, bytes])].map(allButOneByte);

async function sendUnfinished(
  session: AttackSession,
  path: string,
  headers: Readonly<Record<string, string>>,
): Promise<void> {
  const connections = [session.connect(), session.connect()];
  const sent: (Promise<void> | undefined)[] = [];
  await session.times(requests.length, 4, (index) => {
    const call = connections[index % connections.length]?.open(path, headers)?.drain();
    sent.push(call?.sent(requests[index] ?? Buffer.of()));
  });
  await session.untilAll(sent);
  await session.untilAll(connections.map((connection) => connection.settled()));
}

/**
 * Requests that never come whole. Each costs the client the 2 MiB that it sends, once, and nothing to keep. A server
 * that keeps what has come until the rest does holds 160 MiB, and one that refuses the last request when its pool
 * is full refuses all other clients.
 */
export const unfinishedRequests: Attacks = {
  "unfinished requests": {
    ...{ weight: 4, mayHold },
    run: (session) => sendUnfinished(session, paths.list, {}),
  },
  "unfinished compressed requests": {
    ...{ weight: 4, mayHold },
    run: (session) => sendUnfinished(session, paths.list, gzipEncoding),
  },
  "unfinished health requests": {
    ...{ weight: 2, mayHold },
    run: (session) => sendUnfinished(session, paths.healthCheck, {}),
  },
  "unfinished reflection requests": {
    ...{ weight: 2, mayHold },
    run: (session) => sendUnfinished(session, paths.reflection, {}),
  },
};
