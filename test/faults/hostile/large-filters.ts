import { encode } from "../../foreign/protobuf.ts";
import type { AttackSession, Attacks } from "./attack.ts";
import type { HostileConnection } from "./hostile-connection.ts";
import {
  framed,
  gzipEncoding,
  gzipFramed,
  LargeText,
  longSelector,
  maxRequestBytes,
  paths,
  watchRequest,
} from "./requests.ts";

/** Field numbers of WatchRequest and HealthCheckRequest. */
const fields = { key: 2, prefix: 3, service: 1 } as const;

/** As long as fits a message with all else of it. */
const largeText = new LargeText(maxRequestBytes - 128);

/** Opens this many streams, each with what `bytesOf` says, framed, and keeps them. */
async function keepOpen(
  session: AttackSession,
  path: string,
  count: number,
  bytesOf: (index: number) => Uint8Array,
  headers: Readonly<Record<string, string>> = {},
): Promise<HostileConnection> {
  const connection = session.connect();
  const begun: (Promise<void> | undefined)[] = [];
  await session.times(count, 4, (index) => {
    begun.push(connection.send(path, bytesOf(index), headers)?.drain().begun());
  });
  await session.untilAll(begun);
  return connection;
}

function keepLargeText(session: AttackSession, path: string, field: number): Promise<unknown> {
  const before = path === paths.watch ? encode({ 1: session.target.bulk.resource }) : Buffer.of();
  return keepOpen(
    session,
    path,
    100,
    (index) => largeText.framed(before, field, `${index}/`),
    gzipEncoding,
  );
}

/** One requirement with thousands of values: just below the longest selector that is parsed. */
function manyValues(index: number): string {
  const values: string[] = [];
  for (let i = 0, length = 0; length < 64_000; i++) {
    const value = i.toString(36);
    values.push(value);
    length += value.length + 1;
  }
  return `app-${index} in (${values.join(",")})`;
}

/**
 * In MiB. 64 were seen to be held, where a connection may keep 32 MiB of text; what the other half is has not been found
 * out. A server without that bound held over 400.
 */
const mayHoldKeys = 100;

/**
 * Requests whose streams keep what they asked for. Compressed, 2 MiB of text cost the client 2 KiB; a server that
 * keeps the text, and a hash of it or a parsed form beside, holds two to twenty times as much.
 */
export const largeFilters: Attacks = {
  "watches of huge prefixes": {
    ...{ weight: 2, mayHold: 64 },
    run: async (session) => {
      const { resource } = session.target.bulk;
      const tail = "x".repeat(maxRequestBytes - 128);
      const requestOf = (i: number) => framed(watchRequest({ resource, prefix: `${i}/${tail}` }));
      await keepOpen(session, paths.watch, 60, requestOf);
    },
  },
  "watches of huge prefixes, compressed": {
    ...{ weight: 2, mayHold: 64 },
    run: async (session) => {
      await keepLargeText(session, paths.watch, fields.prefix);
    },
  },
  "watches of huge keys, compressed": {
    ...{ weight: 2, mayHold: mayHoldKeys },
    run: async (session) => {
      await keepLargeText(session, paths.watch, fields.key);
    },
  },
  "health watches of huge names, compressed": {
    ...{ weight: 2, mayHold: 64 },
    run: async (session) => {
      await keepLargeText(session, paths.healthWatch, fields.service);
    },
  },
  "watches with huge selectors": {
    ...{ weight: 2, mayHold: 64 },
    run: async (session) => {
      const { resource } = session.target.bulk;
      const requestOf = (i: number) => watchRequest({ resource, labels: manyValues(i) });
      await keepOpen(session, paths.watch, 150, (i) => framed(requestOf(i)));
    },
  },
  "watches with huge selectors, compressed": {
    ...{ weight: 2, mayHold: 64 },
    run: async (session) => {
      const { resource } = session.target.bulk;
      const requestOf = (i: number) => watchRequest({ resource, labels: manyValues(i) });
      await keepOpen(session, paths.watch, 150, (i) => gzipFramed(requestOf(i)), gzipEncoding);
    },
  },
  /** Each filter is small; their number is not. */
  "watches with many distinct filters": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const { resource } = session.target.bulk;
      await keepOpen(session, paths.watch, 4_000, (i) =>
        framed(watchRequest({ resource, prefix: `p-${i}/`, labels: `app=a-${i},tier!=t-${i}` })),
      );
    },
  },
  /** Each event is asked of all of these: here those of honest writers. */
  "watches with selectors of 1,000 requirements": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const { busy: resource } = session.target;
      const connection = await keepOpen(session, paths.watch, 400, (i) =>
        framed(watchRequest({ resource, labels: longSelector(1_000, i) })),
      );
      await session.pause(500);
      await session.untilAll([connection.settled()]);
    },
  },
};
