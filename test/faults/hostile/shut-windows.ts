import type { AttackSession, Attacks } from "./attack.ts";
import { listRequest, paths, type WatchFields, watchRequest } from "./requests.ts";

const calls = 200;
/** How long the beginnings of responses are waited for, in milliseconds. */
const longestWaitMs = 2_000;

/** Sends the requests on two connections whose windows stay shut: nothing of a response can be sent. */
async function askWithoutReading(
  session: AttackSession,
  path: string,
  requestOf: (index: number) => Uint8Array,
): Promise<void> {
  const connections = [session.connect({ window: 0 }), session.connect({ window: 0 })];
  const begun: (Promise<void> | undefined)[] = [];
  await session.times(calls, 20, (index) => {
    begun.push(connections[index % connections.length]?.call(path, requestOf(index))?.begun());
  });
  // A server may let some wait until others have been taken.
  await Promise.race([session.untilAll(begun), session.pause(longestWaitMs)]);
  // All responses for them have been built when a later request has completed.
  const last = session.connect().call(path, requestOf(calls));
  await session.untilAll([last?.messages(path === paths.watch ? 2 : 1)]);
}

/**
 * Responses that are not read. A request costs the client some 20 bytes and a stream; its response is up to 4 MiB. A
 * server that builds the responses and waits for the window to open holds 180 MiB.
 */
export const shutWindows: Attacks = {
  "Lists without a window": {
    ...{ weight: 4, mayHold: 80 },
    run: (session) => {
      const request = listRequest({ resource: session.target.bulk.resource });
      return askWithoutReading(session, paths.list, () => request);
    },
  },
  "Lists with a selector without a window": {
    ...{ weight: 3, mayHold: 80 },
    run: (session) => {
      const { resource } = session.target.bulk;
      return askWithoutReading(session, paths.list, (index) =>
        listRequest({ resource, labels: `app!=none-${index}` }),
      );
    },
  },
  "initial states without a window": {
    ...{ weight: 4, mayHold: 80 },
    run: (session) => initialStatesWithoutWindow(session, () => ({})),
  },
  "initial states with a selector without a window": {
    ...{ weight: 3, mayHold: 80 },
    run: (session) =>
      initialStatesWithoutWindow(session, (index) => ({ labels: `app!=none-${index}` })),
  },
};

function initialStatesWithoutWindow(
  session: AttackSession,
  more: (index: number) => Partial<WatchFields>,
): Promise<void> {
  const { resource } = session.target.bulk;
  return askWithoutReading(session, paths.watch, (index) => {
    const delivery = index % 2 === 0 ? "EVERY_EVENT" : "LATEST_STATE";
    return watchRequest({ resource, initial: true, delivery, ...more(index) });
  });
}
