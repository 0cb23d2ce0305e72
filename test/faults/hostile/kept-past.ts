import type { Delivery } from "../../../src/cacher/request/request.ts";
import type { AttackSession, Attacks } from "./attack.ts";
import { fillerOf, heavyBytes, heavyWrites } from "./bulk.ts";
import type { HostileCall, HostileConnection } from "./hostile-connection.ts";
import { askNext, firstPages } from "./pages.ts";
import { listRequest, match, paths, watchRequest } from "./requests.ts";

/**
 * Old states are kept up to bounds of 128 and 512 MiB, more than is written here in the time that a test has. That they
 * end there is for the tests of these bounds to show (test/cacher/state/retained-snapshots.test.ts); here they are not to cost more
 * than the 32 MiB that are written, with what is around them, in MiB. That is too little to distinguish a server without the
 * bounds: these attacks show that honest clients continue, and how long a turn takes.
 */
const mayHoldStates = 60;

/**
 * Replaces the same few large objects again and again, half a MiB each time: 32 MiB by default, of which 2 MiB are of
 * use to any client in the end.
 */
async function replaceHeavyObjects(
  session: AttackSession,
  connection: HostileConnection,
  after: (write: number) => Promise<void> | void,
  writes = heavyWrites,
): Promise<void> {
  const { resource } = session.target.bulk;
  for (let write = 0; write < writes; write++) {
    await session.put(connection, resource, `heavy/${write % 4}`, fillerOf(heavyBytes, write));
    await after(write);
    await session.pace();
  }
}

/** Takes a chunk of each of many initial states from time to time, each of which is wholly other than the one before. */
async function readSlowly(session: AttackSession, delivery: Delivery): Promise<void> {
  const { resource } = session.target.bulk;
  const connection = session.connect({ window: 16_384 });
  const request = watchRequest({ resource, initial: true, delivery });
  const readers: (HostileCall | undefined)[] = [];
  await replaceHeavyObjects(session, session.connect(), async (write) => {
    readers[write % readers.length]?.stream.read(1_024);
    if (write % 4 !== 3) return;
    const reader = connection.call(paths.watch, request);
    readers.push(reader);
    await session.untilAll([reader?.begun()]);
  });
}

/**
 * Reasons to keep what was. Each costs the client a few small calls, besides writes that may as well be those of
 * honest clients; a server that keeps states, or events from one on, for as long as a client might request them, keeps
 * all that is written since.
 */
export const keptPast: Attacks = {
  /** Events written meanwhile are retained for these streams, up to a cap for each. */
  "slow readers of initial states, every event": {
    ...{ weight: 3, mayHold: 60 },
    run: (session) => readSlowly(session, "EVERY_EVENT"),
  },
  "slow readers of initial states, latest state": {
    ...{ weight: 3, mayHold: mayHoldStates },
    run: (session) => readSlowly(session, "LATEST_STATE"),
  },
  /** Each state is wholly other than the one before, and is asked for so that it is kept. */
  "Lists EXACT of heavy states": {
    ...{ weight: 1, mayHold: mayHoldStates },
    run: async (session) => {
      const { resource } = session.target.bulk;
      const connection = session.connect();
      let before = 0;
      await replaceHeavyObjects(session, connection, async (write) => {
        if (write % 4 !== 3) return;
        const revision = before;
        before = await session.revision(connection);
        if (revision === 0) return;
        const list = { resource, prefix: "heavy/", match: match.exact, revision, pageSize: 1 };
        await session.untilAll([connection.call(paths.list, listRequest(list))?.drain().closed]);
      });
    },
  },
  /** The second page comes more than a second after the first, with a write before and many after it. */
  "second pages of prefixes that no other client lists": {
    // Three times as many writes: caches of chunks fill up meanwhile, too, to 32 MiB.
    ...{ weight: 4, mayHold: mayHoldStates },
    run: async (session) => {
      const { resource } = session.target.bulk;
      const connection = session.connect();
      const held = await firstPages(session, connection, 12);
      await session.put(connection, resource, "pages/0", fillerOf(1_000, 0));
      await session.pause(1_500);
      for (const page of held) await askNext(session, connection, page);
      await replaceHeavyObjects(session, connection, () => {}, 3 * heavyWrites);
    },
  },
};
