import { rawKeyBelow } from "../raw-keys.ts";
import type { Attacks } from "./attack.ts";
import { etcdPutRequest, paths } from "./requests.ts";

/** Writes that are expensive to keep, or that other clients can't name. */
export const writes: Attacks = {
  /**
   * A label of eight bytes takes some sixty bytes once it is parsed. A cache that bounds its history by keys and
   * values alone holds several times what it says.
   */
  "objects of many labels": {
    ...{ weight: 1, mayHold: 32 },
    run: async (session) => {
      const { resource } = session.target.bulk;
      const connection = session.connect();
      for (let write = 0; write < 40; write++) {
        const labels: Record<string, string> = {};
        for (let i = 0; i < 10_000; i++) labels[`l${i}`] = `${write}-${i % 10}`;
        const value = JSON.stringify({ metadata: { labels } });
        await session.put(connection, resource, `labels/${write % 2}`, value);
        await session.pace();
      }
    },
  },

  /**
   * Through etcd's API. A cache that recognises the store by its last change must be able to read that one when it has
   * lost its stream.
   */
  "changes of raw keys": {
    ...{ weight: 2, mayHold: 8 },
    run: async (session) => {
      const connection = session.connect();
      for (let write = 0; write < 200; write++) {
        const request = etcdPutRequest(rawKeyBelow(session.target.busyPrefix, write), `${write}`);
        await session.orAborted(connection.unary(paths.putToEtcd, request));
        await session.pace();
      }
    },
  },
};
