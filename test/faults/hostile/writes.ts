import type { Attacks } from "./attack.ts";

/** Objects whose labels take many times what their values do. */
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
};
