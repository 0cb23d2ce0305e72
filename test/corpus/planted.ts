import type { CorpusEntry } from "./entry.ts";

/** Rules of this service, left out: no known bug is like them, and a simulation has to find each. */
export const plantedEntries: readonly CorpusEntry[] = [
  {
    id: "planted-previous",
    source: "Leave the previous object out of events",
    bug: "The event window does not add the object before an event.",
    shows: "Events have no `previous`.",
    seed: { seed: 1, message: "violates Previous" },
    mutations: [
      {
        file: "src/cacher/state/event-node.ts",
        find: "this.#withPrevious ??= new WatchEvent(this.event.type, this.event.object, this.previous);",
        replace: "return this.event;",
      },
    ],
  },
  {
    id: "planted-history-of-client",
    source: "Accept a resume point with the id of any history",
    bug: "The id with which a client resumes is not compared with that of the cache.",
    shows:
      "A client that was away during a restore continues in another history, and mixes the two.",
    seed: { seed: 370, message: "violates Filter" },
    mutations: [
      {
        file: "src/cacher/watch/watch-opener.ts",
        find: 'if (known !== undefined && known !== "" && known !== historyId) {',
        replace: "if (false) {",
      },
    ],
  },
  {
    id: "planted-history-check",
    source: "Open and resume watches without a check of the store's history",
    bug: "Whether the store still has the history of the cache is not checked before a watch delivers.",
    shows:
      "A replica that connects again after a restore delivers the new history under the old id.",
    seed: { seed: 202, message: "the cache differs from the store" },
    mutations: [
      {
        file: "src/reflector/history/history-tracker.ts",
        find: "    await this.#fingerprint.check(this.#storage, signal);\n    await this.#checkId(signal);\n",
        replace: "",
      },
    ],
  },
];
