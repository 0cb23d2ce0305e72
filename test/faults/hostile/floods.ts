import type { AttackSession, Attacks } from "./attack.ts";
import type { HostileCall } from "./hostile-connection.ts";
import {
  framed,
  getRequest,
  healthRequest,
  listRequest,
  match,
  paths,
  reflectionRequest,
  watchRequest,
} from "./requests.ts";

/** Opens streams and leaves them as they are, neither ended nor read. */
async function forget(
  session: AttackSession,
  path: string,
  requestOf: (index: number) => Buffer,
): Promise<void> {
  const connection = session.connect();
  await session.times(4_000, 100, (index) => {
    connection.open(path)?.stream.write(framed(requestOf(index)));
  });
  await session.untilAll([connection.settled()]);
}

/** Many small calls, opened or cancelled as fast as can be. A call costs the client some tens of bytes. */
export const floods: Attacks = {
  /** A server that lets each opening and each reset take its turn leaves none for others. */
  "watches opened and reset": {
    ...{ weight: 4, mayHold: 64 },
    run: async (session) => {
      const { resource } = session.target.bulk;
      let connection = session.connect();
      const request = framed(watchRequest({ resource, initial: true }));
      let batch: (HostileCall | undefined)[] = [];
      for (let i = 0; i < 25_000; i++) {
        // A client that was disconnected connects again.
        if (connection.isClosed) connection = session.connect();
        batch.push(connection.send(paths.watch, request)?.drain());
        if (batch.length < 5_000) continue;
        // Sent first, so that they are streams to the server before they are reset.
        await session.pace();
        for (const call of batch) call?.cancel();
        batch = [];
      }
      await session.untilAll([connection.settled()]);
    },
  },
  /** A server that limits watches of resources only has no limit for these. */
  "forgotten health streams": {
    ...{ weight: 3, mayHold: 64 },
    run: (session) =>
      forget(session, paths.healthWatch, (index) => healthRequest(`resource/${index}`)),
  },
  "forgotten reflection streams": {
    ...{ weight: 3, mayHold: 64 },
    run: (session) => forget(session, paths.reflection, reflectionRequest),
  },
  /** Each needs etcd's revision, which many can share. */
  "LINEARIZABLE reads": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const { resource, key } = session.target.bulk;
      const connection = session.connect();
      const get = getRequest({ resource, key, match: match.linearizable });
      const list = listRequest({ resource, prefix: key, match: match.linearizable });
      const ends: (Promise<void> | undefined)[] = [];
      await session.times(1_500, 150, (i) => {
        const [path, request] = i % 2 === 0 ? [paths.get, get] : [paths.list, list];
        ends.push(connection.call(path, request)?.drain().closed);
      });
      await session.untilAll(ends);
    },
  },
};
