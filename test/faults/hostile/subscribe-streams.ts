import { encode, type FieldValue } from "../../foreign/protobuf.ts";
import type { AttackSession, Attacks } from "./attack.ts";
import type { HostileCall } from "./hostile-connection.ts";
import { framed, paths, watchRequest } from "./requests.ts";

/** As many as a stream may have by default. */
const watches = 10_000;
/** Number of requests that are sent in one turn. */
const batch = 200;
/** Ids that no watch can have. */
const badIds: readonly (bigint | number)[] = [0, -1n, -(2n ** 63n), 2n ** 53n, 2n ** 63n - 1n];

type Id = bigint | number;

interface Credit {
  readonly messages?: FieldValue;
}

function addRequest(id: Id, watch: Buffer, { messages }: Credit = {}): Buffer {
  return framed(encode({ 1: encode({ 1: id, 2: watch, 3: messages }) }));
}

function removeRequest(id: Id): Buffer {
  return framed(encode({ 2: encode({ 1: id }) }));
}

function grantRequest(id: Id, messages: Id): Buffer {
  return framed(encode({ 3: encode({ 1: id, 2: messages }) }));
}

function progressRequest(id: Id, tag: Id = 0): Buffer {
  return framed(encode({ 4: encode({ 1: id, 2: tag }) }));
}

/** A watch of a part of the keys, which no other watch has. */
function shardRequest(resource: string, index: number): Buffer {
  const width = 2n ** 64n / BigInt(watches);
  const range = Buffer.alloc(18);
  range[0] = 0x09;
  range.writeBigUInt64LE(BigInt(index) * width, 1);
  range[9] = 0x11;
  range.writeBigUInt64LE(BigInt(index) * width + width / 2n, 10);
  return Buffer.concat([watchRequest({ resource }), encode({ 15: encode({ 1: range }) })]);
}

function open(session: AttackSession, window?: number): HostileCall | undefined {
  return session.connect(window === undefined ? {} : { window }).open(paths.subscribe);
}

/** Sends requests without a pause, as far as the server takes them. */
async function send(
  session: AttackSession,
  call: HostileCall,
  count: number,
  requestOf: (index: number) => Buffer,
): Promise<void> {
  for (let at = 0; at < count && !call.stream.closed; at += batch) {
    const requests = Array.from({ length: Math.min(batch, count - at) }, (_, i) =>
      requestOf(at + i),
    );
    await session.orAborted(call.sent(Buffer.concat(requests)));
    await session.pace();
  }
}

/** Adds and removes as many watches as a stream may have, twice. */
async function addAndRemove(
  session: AttackSession,
  watchOf: (index: number) => Buffer,
): Promise<void> {
  const call = open(session)?.drain();
  if (call === undefined) return;
  for (let round = 0; round < 2; round++) {
    await send(session, call, watches, (index) => addRequest(index + 1, watchOf(index)));
    await send(session, call, watches, (index) => removeRequest(index + 1));
  }
}

/** Many watches on one stream, by requests of some tens of bytes each. */
export const subscribeStreams: Attacks = {
  "watches of a stream added and removed": {
    ...{ weight: 3, mayHold: 40 },
    run: (session) => {
      const { busy } = session.target;
      return addAndRemove(session, (index) =>
        watchRequest({ resource: busy, prefix: `none/${index}` }),
      );
    },
  },
  "shards of a stream added and removed": {
    ...{ weight: 3, mayHold: 40 },
    run: (session) => addAndRemove(session, (index) => shardRequest(session.target.busy, index)),
  },
  "requests of a stream that can't be carried out": {
    ...{ weight: 3, mayHold: 32 },
    run: async (session) => {
      const call = open(session)?.drain();
      if (call === undefined) return;
      const watch = watchRequest({ resource: session.target.busy });
      const { random } = session;
      const badId = (): Id => random.pick(badIds);
      const kinds: readonly (() => Buffer)[] = [
        () => addRequest(badId(), watch),
        () => addRequest(7, watch),
        () => addRequest(8, watch, { messages: -1n }),
        () => removeRequest(badId()),
        () => removeRequest(random.between(100, 1e9)),
        () => grantRequest(7, 2n ** 63n - 1n),
        () => grantRequest(7, -1n),
        () => progressRequest(badId()),
        () => progressRequest(99),
        () => framed(Buffer.alloc(20, random.between(0, 255))),
        () => framed(Buffer.of()),
      ];
      await send(session, call, 20_000, () => random.pick(kinds)());
    },
  },
  "requests for the progress of many watches, and their removal": {
    ...{ weight: 3, mayHold: 48 },
    run: async (session) => {
      const call = open(session)?.drain();
      if (call === undefined) return;
      const watch = watchRequest({ resource: session.target.busy, prefix: "none/" });
      await send(session, call, watches, (index) => addRequest(index + 1, watch));
      await send(session, call, 2_000, (index) => progressRequest(0, index));
      await send(session, call, watches, (index) => progressRequest(index + 1));
      // A request for the progress of all that waits is about none then.
      await send(session, call, 4, (index) => progressRequest(0, index));
      await send(session, call, watches, (index) => removeRequest(index + 1));
    },
  },
  "watches of a stream without credit": {
    ...{ weight: 3, mayHold: 64 },
    run: async (session) => {
      const call = open(session)?.drain();
      if (call === undefined) return;
      const watch = watchRequest({ resource: session.target.busy });
      // Half of them go live first.
      await send(session, call, watches, (index) =>
        addRequest(index + 1, watch, { messages: (index % 2) * 2 }),
      );
      call.stream.end();
    },
  },
  "watches of streams without a window": {
    ...{ weight: 3, mayHold: 80 },
    run: async (session) => {
      const { busy, bulk } = session.target;
      const initial = watchRequest({ resource: bulk.resource, initial: true });
      for (let stream = 0; stream < 10; stream++) {
        const call = open(session, 0);
        if (call === undefined) return;
        await send(session, call, 200, (index) =>
          addRequest(
            index + 1,
            index % 10 === 0 ? initial : watchRequest({ resource: busy, prefix: "" }),
          ),
        );
        call.stream.end();
      }
    },
  },
};
