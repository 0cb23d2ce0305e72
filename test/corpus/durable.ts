import type { CorpusEntry } from "./entry.ts";

const reflector = "src/reflector/reflector.ts";
const changes = "src/storage/memory/changes.ts";

/** Bugs that nobody is known to have had, of the embedded store on its disk, and of caches that start from one. */
export const durableEntries: readonly CorpusEntry[] = [
  {
    id: "planted-answer-before-sync",
    source: "Answer a write when it is applied",
    bug: "A write is acknowledged before it is synced.",
    shows: "An acknowledged write is lost with the power.",
    seed: { seed: 120_400, message: "violates Kept" },
    mutations: [
      {
        file: changes,
        find: "    await this.allKept(signal);\n    return changed;",
        replace: "    return changed;",
      },
    ],
  },
  {
    id: "planted-refusal-before-sync",
    source: "Answer a refusal when it is known",
    bug: "A conflict shows an object that is not synced.",
    shows: "A client learns of a write that is lost with the power.",
    seed: { seed: 120_400, message: "violates Kept" },
    mutations: [
      {
        file: changes,
        find: "      await this.allKept(signal);\n      throw refusal;",
        replace: "      throw refusal;",
      },
    ],
  },
  {
    id: "planted-watch-before-sync",
    source: "Send events when they are applied",
    bug: "A watch delivers what is not synced.",
    shows: "An event of a write that is lost with the power, and another one at its revision.",
    seed: { seed: 120_400, message: "violates" },
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
    seed: { seed: 120_400, message: "violates" },
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
    seed: { seed: 120_400, message: "violates Faithful" },
    mutations: [
      {
        file: changes,
        find: "for (const request of await journal.requests()) this.requests.add(request);",
        replace: "await journal.requests();",
      },
    ],
  },
  {
    id: "planted-warm-unconfirmed",
    source: "Follow a kept state without a look at the store's history",
    bug: "A cache that starts from disk does not confirm that the store still has its history.",
    shows: "A client receives two histories as one.",
    seed: { seed: 130_000, message: "violates" },
    mutations: [
      {
        file: reflector,
        find: "this.#history.restore(kept);",
        replace: "this.#history.restore(kept); Object.assign(this.#history, { isWarm: true });",
      },
      {
        file: reflector,
        find: "if (isResumed) await this.#history.check(signal);",
        replace:
          'if (isResumed && "isWarm" in this.#history); else if (isResumed) await this.#history.check(signal);',
      },
      {
        file: reflector,
        find: "confirm: history.canCheckState ? confirm : undefined,",
        replace: 'confirm: history.canCheckState && !("isWarm" in history) ? confirm : undefined,',
      },
    ],
  },
];
