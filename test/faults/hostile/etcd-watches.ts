import { setTimeout as delay } from "node:timers/promises";
import { RawCall } from "../../etcd-api/raw-grpc.ts";
import { WatchClient } from "../../etcd-api/watch-client.ts";
import type { AttackSession, Attacks } from "./attack.ts";
import type { HostileConnection } from "./hostile-connection.ts";
import { paths } from "./requests.ts";

const streams = 30;
const watchesPerStream = 10;
/** Between the watches of a stream, in milliseconds: etcd answers when it has synced those before, every 100 ms. */
const betweenMs = { least: 120, most: 300 };
/** After which time progress is requested again, in milliseconds: there is no answer while a watch is not synced. */
const askMs = 50;

/** Opens a Watch stream of etcd's API; undefined once the server has closed the connection. */
function open(connection: HostileConnection): WatchClient | undefined {
  const call = connection.open(paths.etcdWatch);
  return call && new WatchClient({ open: () => new RawCall(call.stream) });
}

/** Asks for progress until it has come for each watch, by its id or for all, behind `created` of the last one. */
async function untilAllHaveProgress(stream: WatchClient, watches: number): Promise<void> {
  await stream.until((responses) => responses.filter(({ created }) => created).length === watches);
  const before = stream.responses.length;
  const ids = Array.from({ length: watches }, (_, id) => String(id));
  const hasAll = (): boolean => {
    const progress = stream.responses.slice(before).filter(({ events }) => events.length === 0);
    return ids.every((id) => progress.some((each) => [id, "-1"].includes(each.id)));
  };
  while (!hasAll()) {
    const { length } = stream.responses;
    stream.requestProgress();
    await Promise.race([stream.until((responses) => responses.length > length), delay(askMs)]);
  }
}

/**
 * The number of events of each watch, once all have progress. Undefined if that can't be known: the stream has ended, or a
 * fault of the soak has ended a watch.
 */
async function eventsOfAll(
  session: AttackSession,
  stream: WatchClient,
  watches: number,
): Promise<readonly number[] | undefined> {
  const known = untilAllHaveProgress(stream, watches).then(
    () => true,
    () => false,
  );
  if (!(await session.orAborted(known))) return undefined;
  if (stream.responses.some(({ canceled }) => canceled)) return undefined;
  return Array.from({ length: watches }, (_, id) => stream.eventsOf(String(id)).length);
}

/** Watches through etcd's API. */
export const etcdWatches: Attacks = {
  /**
   * etcd may send `created` of a watch before its answers to earlier progress requests, which say nothing of the watch's
   * events. If they are taken for its progress, a cache continues it behind events that it was never sent.
   */
  "etcd watches from old revisions between progress requests": {
    ...{ weight: 3, mayHold: 32 },
    run: async (session) => {
      const { prefix, key, stored } = session.target.bulk;
      const fields = { 1: prefix + key, 3: stored[0] };
      const connection = session.connect();
      const alone = open(connection);
      alone?.create(fields);
      const [expected] = (alone && (await eventsOfAll(session, alone, 1))) ?? [];
      if (expected === undefined) return;
      const lost: number[] = [];
      const attacking = Array.from({ length: streams }, async () => {
        const stream = open(connection);
        // No cache has it, so the stream to etcd stays.
        stream?.create({ 1: "/elsewhere" });
        for (let watch = 1; stream !== undefined && watch < watchesPerStream; watch++) {
          await session.pause(session.random.between(betweenMs.least, betweenMs.most));
          stream.requestProgress();
          stream.create(fields);
        }
        const events = (stream && (await eventsOfAll(session, stream, watchesPerStream))) ?? [];
        lost.push(...events.slice(1).filter((count) => count !== expected));
      });
      await session.untilAll(attacking);
      if (lost.length > 0) throw new Error(`Watches got ${lost} of ${expected} events.`);
    },
  },
};
