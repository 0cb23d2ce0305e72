import type { AttackSession, Attacks } from "./attack.ts";
import {
  getRequest,
  gzipEncoding,
  gzipFramed,
  listRequest,
  maxRequestBytes,
  paths,
} from "./requests.ts";

const calls = 300;

const mayHold = 64;

/** Just below the limit for a message once it is inflated; sent, it is 2 KiB. */
const upToTheLimit = gzipFramed(
  getRequest({ resource: "r", key: "k".repeat(maxRequestBytes - 64) }),
);
/** 64 MiB inflated; sent, 64 KiB. */
const beyondTheLimit = gzipFramed(Buffer.alloc(64 * 1024 ** 2));

async function sendCompressed(
  session: AttackSession,
  path: string,
  bytes: Buffer,
  count: number,
): Promise<void> {
  const connection = session.connect();
  const ends: (Promise<void> | undefined)[] = [];
  await session.times(count, 100, () => {
    ends.push(connection.send(path, bytes, gzipEncoding)?.drain().closed);
  });
  await session.untilAll(ends);
}

/**
 * Small requests that are large once inflated, many at once. They cost the client a few hundred KiB in all; a server
 * that inflates them all at once holds 600 MiB while it does.
 */
export const compressedRequests: Attacks = {
  "gzip bombs up to the message limit": {
    ...{ weight: 4, mayHold },
    run: (session) => sendCompressed(session, paths.get, upToTheLimit, calls),
  },
  "gzip bombs beyond the message limit": {
    ...{ weight: 2, mayHold },
    run: (session) => sendCompressed(session, paths.list, beyondTheLimit, 40),
  },
  /** Compressed requests that are in order: they have to be served, and take the other call path. */
  "small compressed requests": {
    ...{ weight: 2, mayHold },
    run: (session) => {
      const { resource, key } = session.target.bulk;
      const list = listRequest({ resource, prefix: key });
      return sendCompressed(session, paths.list, gzipFramed(list), 1_000);
    },
  },
};
