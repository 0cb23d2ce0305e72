import type { CorpusEntry } from "./entry.ts";

const changes = "src/storage/memory/changes.ts";

/** Bugs without a known case, of the embedded store on its disk. */
export const durableEntries: readonly CorpusEntry[] = [
  {
    id: "planted-answer-before-sync",
    source: "Answer a write when it is applied",
    bug: "A write is acknowledged before it is synced.",
    shows: "An acknowledged write is lost with the power.",
    seed: { seed: 120_410, message: "Kept: " },
    mutations: [
      {
        file: changes,
        find: "if (!(await this.#isRefusedWithOthers(goesAlone, signal))) return result;",
        replace: "return result;",
      },
    ],
  },
  {
    id: "planted-refusal-before-sync",
    source: "Answer a refusal when it is known",
    bug: "A conflict shows an object that is not synced.",
    shows: "A client learns of a write that is lost with the power.",
    seed: { seed: 120_019, message: "Linearizable: " },
    mutations: [
      {
        file: changes,
        find: "if (await this.#isRefusedWithOthers(goesAlone, signal)) continue;",
        replace: "",
      },
    ],
  },
  {
    id: "planted-watch-before-sync",
    source: "Send events when they are applied",
    bug: "A watch delivers what is not synced.",
    shows: "An event of a write that is lost with the power, and another one at its revision.",
    seed: { seed: 120_410, message: "Filter: " },
    mutations: [
      {
        file: "src/storage/memory/memory-watch.ts",
        find: "return this.#position < this.#log.kept ? this.#log.at(this.#position + 1) : undefined;",
        replace:
          "return this.#position < this.#log.newest ? this.#log.at(this.#position + 1) : undefined;",
      },
    ],
  },
  {
    id: "planted-forgotten-lease",
    source: "Undo the changes that found no room, and not their leases",
    bug: "An object whose change was undone has no lease any more, or another one.",
    shows: "An object outlives its lease, or is deleted with another one.",
    seed: { seed: 120_406, message: "Invented: " },
    mutations: [
      {
        file: changes,
        find: "leases.undo(draft.granted, transaction?.events ?? [], ended);",
        replace: "",
      },
    ],
  },
  {
    id: "planted-kept-request",
    source: "Leave the ids of requests out of the journal",
    bug: "The id of a request is forgotten with the process.",
    shows: "A request that is repeated after a restart is executed twice.",
    seed: { seed: 120_410, message: "Invented: " },
    mutations: [
      {
        file: changes,
        find: "for (const request of await journal.requests()) this.requests.add(request);",
        replace: "await journal.requests();",
      },
    ],
  },
];
