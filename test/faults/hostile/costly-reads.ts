import type { AttackSession, Attacks } from "./attack.ts";
import { getRequest, listRequest, longSelector, match, paths, watchRequest } from "./requests.ts";

/** Sends all requests in one turn, so that they come to the server in as few packets as can be. */
async function askAtOnce(
  session: AttackSession,
  path: string,
  requests: readonly Uint8Array[],
): Promise<void> {
  const connection = session.connect();
  await session.pace();
  await session.untilAll(requests.map((request) => connection.call(path, request)?.drain().closed));
}

/** Past states, each at a revision of its own: of the large resource, or of the one that is written all the time. */
async function historicalSnapshots(
  session: AttackSession,
  count: number,
): Promise<readonly { readonly resource: string; readonly revision: number }[]> {
  const { busy, bulk } = session.target;
  const current = await session.revision(session.connect());
  return Array.from({ length: count }, (_, i) =>
    session.random.chance(0.9)
      ? { resource: bulk.resource, revision: bulk.past[i % bulk.past.length] ?? 1 }
      : { resource: busy, revision: Math.max(1, current - session.random.between(1, 5_000)) },
  );
}

/**
 * Requests of some bytes that take time in proportion to what the cache holds: scans with long selectors, and
 * states of the past, for which events are undone. A server that does each in one go holds its event loop for
 * seconds.
 */
export const costlyReads: Attacks = {
  "Lists with selectors of 1,000 requirements": {
    ...{ weight: 4, mayHold: 64 },
    run: (session) => {
      const { resource } = session.target.bulk;
      const requests = Array.from({ length: 80 }, (_, i) =>
        listRequest({ resource, labels: longSelector(1_000, i), match: match.any }),
      );
      return askAtOnce(session, paths.list, requests);
    },
  },
  "initial states with selectors of 1,000 requirements": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const { resource } = session.target.bulk;
      const connection = session.connect();
      await session.pace();
      const watches = Array.from({ length: 40 }, (_, i) => {
        const labels = longSelector(1_000, i);
        return connection.call(paths.watch, watchRequest({ resource, labels, initial: true }));
      });
      // The first comes at once; the second ends the state, of which nothing matches.
      await session.untilAll(watches.map((watch) => watch?.messages(2)));
    },
  },
  "Gets EXACT at many revisions": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const { key } = session.target.bulk;
      const requests = (await historicalSnapshots(session, 300)).map(({ resource, revision }) =>
        getRequest({ resource, key, match: match.exact, revision }),
      );
      await askAtOnce(session, paths.get, requests);
    },
  },
  "Lists EXACT at many revisions": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const requests = (await historicalSnapshots(session, 300)).map(({ resource, revision }, i) =>
        listRequest({
          ...{ resource, prefix: `unlisted-${i}/`, match: match.exact, pageSize: 1 },
          revision,
        }),
      );
      await askAtOnce(session, paths.list, requests);
    },
  },
  /** Nothing but etcd has these states, so each asks etcd. */
  "Lists that only etcd can serve": {
    ...{ weight: 3, mayHold: 64 },
    run: (session) => {
      const { resource, stored } = session.target.bulk;
      const requests = Array.from({ length: 150 }, (_, i) =>
        listRequest({
          ...{ resource, match: match.exact, pageSize: 1 + (i % 7) },
          revision: stored[i % stored.length] ?? 1,
        }),
      );
      return askAtOnce(session, paths.list, requests);
    },
  },
};
