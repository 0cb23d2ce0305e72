import type { CorpusEntry } from "./entry.ts";

const etcdWatch = "src/storage/etcd/etcd-watch.ts";
const connection = "src/storage/etcd/watch-connection.ts";
const modelWatch = "test/simulation/etcd-watch.ts";
const issues = "https://github.com/etcd-io/etcd/issues/";
const pulls = "https://github.com/etcd-io/etcd/pull/";

/** Bugs of etcd, and of its client libraries. */
export const etcdEntries: readonly CorpusEntry[] = [
  {
    id: "etcd-18089",
    source: `${issues}18089`,
    bug: "A compaction at the revision of a deletion removes the deletion, and a watch from before it is continued without it.",
    shows: "A deleted object stays in the cache and with every client.",
    tests: [
      {
        file: "test/storage/etcd/watch/compaction-guard.test.ts",
        name: "is lost, with all later ones, if the revision before it is compacted",
        message: "'lost after 1004'",
      },
    ],
    seed: { seed: 23, message: "violates Typed" },
    mutations: [
      {
        file: "src/storage/etcd/compaction-guard.ts",
        find: "if (!isAvailable) return this.#deps.onLost(this.#after);",
        replace: "",
      },
    ],
  },
  {
    id: "etcd-19179",
    source: `${issues}19179`,
    bug: "A watch that begins at the compacted revision does not receive the deletion at that revision.",
    shows: "As etcd-18089, for the first batch of a resumed watch.",
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "REVISION_TOO_OLD when its start was compacted before the watch had caught up",
        message: "timed out",
      },
    ],
    mutations: [
      {
        file: etcdWatch,
        find: "const isHistorical = after < this.#syncedRevision || after === this.#request.afterRevision;",
        replace: "const isHistorical = false;",
      },
    ],
  },
  {
    id: "etcd-15220",
    source: `${issues}15220`,
    bug: "The answer to a progress request names the revision of events that follow it.",
    shows: "A linearizable read misses a write, and a resumed watch misses the events.",
    seed: { seed: 1, message: "violates Honest" },
    isPassedOn:
      "the check of the history finds it when the watch is resumed, and ends the streams with HISTORY_CHANGED",
    mutations: [{ file: modelWatch, find: "if (!isSynced) return;", replace: "" }],
  },
  {
    id: "etcd-15220-created",
    source: `${issues}15220`,
    bug: "The same for an answer to a request that was sent before the watch existed.",
    shows: "The cache takes the revision of events that are still to come for its own.",
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "is not progress that overtook the creation",
        message: "sent revision 11 again, after 50",
      },
    ],
    mutations: [
      {
        file: connection,
        find: "if (this.#isCreated || response.canceled) onResponse(response);",
        replace: "onResponse(response);",
      },
    ],
  },
  {
    id: "etcd-15271",
    source: `${issues}15271`,
    bug: "A member that installs a snapshot sends its watches events that they have had.",
    shows: "Clients receive a revision twice, and go back in time.",
    isWithstood: true,
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "UPSTREAM_UNAVAILABLE when a revision comes a second time",
        message: "an event above what was delivered whole",
      },
    ],
    seed: { seed: 2, message: "The storage repeated revision" },
    mutations: [
      {
        file: modelWatch,
        find: "if (watcher.next <= this.#store().revision) watcher.isSynced = false;",
        replace: "watcher.next = Math.max(1, watcher.next - 5);\n      watcher.isSynced = false;",
      },
      {
        file: etcdWatch,
        find: "if (revision <= this.#position) {",
        replace: "if (false) {",
      },
    ],
  },
  {
    id: "etcd-17247",
    source: `${issues}17247`,
    bug: "A watch receives an event a second time.",
    shows: "As etcd-15271. A watch of etcd's API that no cache serves passes it on.",
    isWithstood: true,
    seed: { seed: 63, message: "The storage repeated revision" },
    mutations: [
      {
        file: modelWatch,
        find: "      this.#send(watcher, revision, revision);\n",
        replace:
          "      this.#send(watcher, revision, revision);\n      if (revision % 7 === 0) this.#send(watcher, revision, revision);\n",
      },
      {
        file: etcdWatch,
        find: "if (revision <= this.#position) {",
        replace: "if (false) {",
      },
    ],
  },
  {
    id: "etcd-8411",
    source: `${issues}8411`,
    bug: "A member that installs a snapshot does not send its watches the events that the snapshot has.",
    shows: "The events in between are missing from the cache.",
    seed: { seed: 2616, message: "violates Filter" },
    isPassedOn:
      "the clients lack the events until a check of the history or the consistency check finds it",
    mutations: [
      {
        file: modelWatch,
        find: "if (watcher.next <= this.#store().revision) watcher.isSynced = false;",
        replace: "",
      },
    ],
  },
  {
    id: "etcd-17529",
    source: `${issues}17529`,
    bug: "A watch that is behind a compaction is continued after it, instead of being cancelled.",
    shows: "The events in between are missing from the cache.",
    isPassedOn:
      "the test compares the model with the real etcd. With the bug, clients lack the events until a check of the history or the consistency check finds it",
    tests: [
      {
        file: "test/simulation/etcd-model.test.ts",
        name: "The model answers, and delivers to watches, what the real etcd does.",
        message: "to deeply equal { cancelled: 'compacted ",
      },
    ],
    mutations: [
      {
        file: modelWatch,
        find: "    if (watcher.next < compacted) {\n",
        replace:
          "    if (watcher.next < compacted) {\n      watcher.next = compacted;\n      watcher.isSynced = true;\n      return;\n",
      },
    ],
  },
  {
    id: "etcd-20655",
    source: `${issues}20655`,
    bug: "A watch that reads the past in parts is taken for synced before it has all of them.",
    shows: "The rest of the past is missing from the cache.",
    seed: { seed: 1, message: "violates EtcdWatch" },
    isPassedOn:
      "the clients lack the events until a check of the history or the consistency check finds it",
    mutations: [
      {
        file: modelWatch,
        find: "if (after === undefined) watcher.isSynced = true;",
        replace:
          "watcher.next = revision + 1;\n    watcher.isSynced = true;\n    if (after === undefined) return;",
      },
    ],
  },
  {
    id: "etcd-20221",
    source: `${issues}20221`,
    bug: "A watch from a revision that its member has not reached receives older events and progress.",
    shows: "A restored etcd is not detected: the cache waits for its old revision in silence.",
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "HISTORY_CHANGED, before a watch is opened, above etcd's own revision",
        message: "to match object",
      },
    ],
    mutations: [
      {
        file: etcdWatch,
        find: "if (afterRevision !== undefined && afterRevision > current) {",
        replace: "if (false) {",
      },
    ],
  },
  {
    id: "etcd-20229",
    source: `${pulls}20229`,
    bug: "The fix of etcd-20221 withholds progress from a watch that begins at the next revision.",
    shows: "While the store is idle, a linearizable read waits for progress that does not come.",
    tests: [
      {
        file: "test/storage/etcd/newer-etcd.test.ts",
        name: "starts at it on 3.6, which reports progress from there on only",
        message: "expected 11 to be 10",
      },
    ],
    mutations: [
      {
        file: etcdWatch,
        find: "const isIdle = this.#position === current && member.withholdsProgressBeforeStart;",
        replace: "const isIdle = false;",
      },
    ],
  },
  {
    id: "etcd-10681",
    source: `${issues}10681`,
    bug: "An event comes without its previous value, since that was compacted meanwhile.",
    shows: "A watch with a selector takes the object for one that did not match before.",
    tests: [
      {
        file: "test/storage/etcd/watch/left-out-previous.test.ts",
        name: "is requested again, without an effect on the reader",
        message: "to match object",
      },
    ],
    mutations: [
      {
        file: "src/storage/etcd/objects/decode.ts",
        find: "if (withPrevious && !isCreation && before === undefined) throw new MissingPreviousError();",
        replace: "",
      },
    ],
  },
  {
    id: "etcd-20488",
    source: `${issues}20488`,
    bug: "The cache of etcd's client accepts a watch from any revision while its history of events is empty.",
    shows:
      "A client that resumes at a replica that has just listed misses the events before the list.",
    tests: [
      {
        file: "test/cacher/watch/watching.test.ts",
        name: "is HISTORY_LOST if the next events are lost upstream",
        message: "to be 'REVISION_TOO_OLD'",
      },
    ],
    mutations: [
      {
        file: "src/cacher/watch/watch-opener.ts",
        find: "if (revision < cache.eventWindow.floor.revision)\n",
        replace:
          "if (revision < cache.eventWindow.floor.revision && cache.eventWindow.length > 0)\n",
      },
      {
        file: "src/cacher/state/event-window.ts",
        find: "if (revision < this.#floor.revision) return undefined;",
        replace: "if (revision < this.#floor.revision && this.#length > 0) return undefined;",
      },
    ],
  },
  {
    id: "clientv3-4564",
    source: `${pulls}4564`,
    bug: "After a reconnect a watch begins at the store's current revision, not after what it has received.",
    shows: "Everything that was written during the reconnect is missing.",
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "never goes back",
        message: "sent revision 30 again, after 50",
      },
    ],
    seed: { seed: 3, message: "violates Filter" },
    mutations: [
      {
        file: etcdWatch,
        find: "this.#position = afterRevision ?? current;",
        replace: "this.#position = current;",
      },
    ],
  },
  {
    id: "clientv3-5239",
    source: `${issues}5239`,
    bug: "The client resumes a watch from a compacted revision again and again.",
    shows: "The cache stands still for good, instead of being listed again.",
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "REVISION_TOO_OLD and the oldest revision when etcd has compacted it",
        message: "to match object",
      },
    ],
    mutations: [
      {
        file: etcdWatch,
        find: "if (compactRevision > 0) this.#finish(",
        replace: "if (false) this.#finish(",
      },
    ],
  },
  {
    id: "clientv3-fragment",
    source: `${pulls}8371`,
    bug: "A fragment of a response is taken for the whole response.",
    shows:
      "Half of a transaction is delivered with a resume point, and a resumed watch misses the rest.",
    seed: { seed: 1, message: "violates Reliable" },
    tests: [
      {
        file: "test/etcd/wire/revision-joiner.test.ts",
        name: "One revision of etcd in fragments is put together up to a bound",
        message: "to be undefined",
      },
    ],
    mutations: [
      {
        file: "src/etcd/wire/whole-revisions.ts",
        find: "if (!isFragment) this.#close();",
        replace: "this.#close();",
      },
    ],
  },
  {
    id: "clientv3-header",
    source: `${pulls}5984`,
    bug: "A reader takes the revision in a response's header, which is the store's, for its resume point.",
    shows:
      "A watch that is behind misses everything up to the store's revision once it is resumed.",
    seed: { seed: 1, message: "violates Honest" },
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "is not the header's revision on the response that creates the watch, nor while catching up",
        message: "'50: 11 12'",
      },
    ],
    mutations: [
      {
        file: etcdWatch,
        find: "if (whole !== undefined) this.#deliver(whole.revision, whole.events, arrivedAt);",
        replace:
          "if (whole !== undefined) this.#deliver(Math.max(whole.revision, arguments[0].revision), whole.events, arrivedAt);",
      },
    ],
  },
  {
    id: "etcd3-31",
    source: "https://github.com/microsoft/etcd3/issues/31",
    bug: "A stream that ends is not noticed: the watcher stays open, and receives nothing any more.",
    shows: "The cache becomes stale without an error.",
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "UPSTREAM_UNAVAILABLE when the stream ends without an error",
        message: "to match object",
      },
    ],
    mutations: [
      {
        file: connection,
        find: 'if (!isOver()) onError(this.failure("ended a watch without a reason"));',
        replace: "",
      },
    ],
  },
  {
    id: "dotnet-etcd-310",
    source: "https://github.com/shubhamranjan/dotnet-etcd/pull/310",
    bug: "A broken watch is opened again with its first request, from now on.",
    shows: "The client library misses what happened during the reconnect.",
    tests: [
      {
        file: "test/client/watch/resuming-watch.test.ts",
        name: "is opened again after the last complete batch, with the other options unchanged.",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/client/watch/resuming-watch.ts",
        find: "next = resumeAfter(request, batch);",
        replace: "next = request;",
      },
    ],
  },
  {
    id: "python-etcd3-729",
    source: "https://github.com/kragniz/python-etcd3/issues/729",
    bug: "A watch that ends between two events of one transaction can be resumed only with a gap or a repetition.",
    shows: "Half of a transaction is delivered with a resume point.",
    tests: [
      {
        file: "test/cacher/dispatch/dispatched-revisions.test.ts",
        name: "offers all events of a revision in one batch, however long a round takes",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/cacher/dispatch/dispatcher.ts",
        find: "this.#moveTo(lastOfRevision(next));",
        replace: "this.#moveTo(next);",
      },
    ],
  },
  {
    id: "etcd-14303",
    source: `${issues}14303`,
    bug: "After a restore of etcd from a snapshot a watching client continues with its old revision, without an error.",
    shows: "Clients mix two histories.",
    tests: [
      {
        file: "test/reflector/reflector.test.ts",
        name: "finds another history in a store that is below the resume point that was lost",
        message: "'history lost: [] →3 of 3'",
      },
    ],
    mutations: [
      {
        file: "src/reflector/reflector-state.ts",
        find: 'if (this.#cause === "history lost" && current < this.#lostAt) this.changeHistory();',
        replace: "",
      },
    ],
  },
];
