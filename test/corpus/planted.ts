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
    seed: { seed: 4, message: "violates Filter" },
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
    tests: [
      {
        file: "test/reflector/history/store-fingerprint.test.ts",
        name: "finds another history if its last change was never made",
        message: "to match /^history changed",
      },
    ],
    seed: { seed: 68, message: "violates OneHistory" },
    mutations: [
      {
        file: "src/reflector/history-tracker.ts",
        find: "    await this.#fingerprint.check(this.#storage, signal);\n    await this.checkId(signal);\n",
        replace: "",
      },
    ],
  },
  {
    id: "planted-progress-waits",
    source: "Answer a request for progress without waiting for the watches",
    bug: "The progress of a Subscribe stream does not wait until its watches are at the store's revision.",
    shows: "A watch sends events that are before the cut behind it.",
    seed: { seed: 10004, message: "violates Ordered" },
    mutations: [
      {
        file: "src/server/services/subscribe/stream-progress.ts",
        find: "if (watch.deliveredRevision < revision) {",
        replace: "if (watch.deliveredRevision < 0) {",
      },
    ],
  },
  {
    id: "planted-progress-highest",
    source: "Report the watch that is furthest ahead as the progress of all",
    bug: "The progress of a Subscribe stream is the highest revision of its watches, not the lowest.",
    shows:
      "A transaction over several watches has arrived in part, and the client takes it for whole.",
    seed: { seed: 10004, message: "violates Ordered" },
    mutations: [
      {
        file: "src/server/services/subscribe/stream-progress.ts",
        find: "this.#stream.progressed(this.#target, this.#tag);",
        replace:
          "this.#stream.progressed([...this.#stream.watches.values()].reduce((most, { deliveredRevision }) => Math.max(most, deliveredRevision), this.#target), this.#tag);",
      },
    ],
  },
  {
    id: "planted-progress-unread",
    source: "Take a watch that has something to send for one that has sent it",
    bug: "What waits for the reader of a watch counts as delivered.",
    shows: "As planted-progress-highest, for a watch without credit.",
    seed: { seed: 10002, message: "violates Reliable" },
    mutations: [
      {
        file: "src/cacher/watch/cache-watcher.ts",
        find: "if (!this.#isLive || this.#buffer.length > 0) return undefined;",
        replace: "if (!this.#isLive) return undefined;",
      },
    ],
  },
  {
    id: "planted-credit",
    source: "Do not count the responses that a watch sends",
    bug: "A watch of a Subscribe stream sends more responses than its client has granted.",
    shows: "The same.",
    seed: { seed: 10004, message: "violates Credit" },
    mutations: [
      {
        file: "src/server/services/subscribe/subscription.ts",
        find: "      credit.messages--;\n",
        replace: "",
      },
    ],
  },
  {
    id: "planted-removed-watch",
    source: "Send what a removed watch still has",
    bug: "A watch of a Subscribe stream is not closed when its client removes it.",
    shows: "A client receives responses with an id that it does not use any more.",
    seed: { seed: 10002, message: "violates Subscribe" },
    mutations: [
      {
        file: "src/server/services/subscribe/subscribe-stream.ts",
        find: "    this.#countResource(watch.served, -1);\n    this.#closeWatch(watch);\n",
        replace: "    this.#countResource(watch.served, -1);\n",
      },
    ],
  },
  {
    id: "planted-shard-bound",
    source: "Leave the last hash out of a range",
    bug: "A shard does not have the key whose hash is the last one of its range.",
    shows: "The shards are together less than the whole.",
    seed: { seed: 10001, message: "violates Reliable" },
    mutations: [
      {
        file: "src/cacher/request/shard.ts",
        find: "to: last === largestHash ? undefined : textOf(last + 1n) };",
        replace: "to: last === largestHash ? undefined : textOf(last) };",
      },
    ],
  },
  {
    id: "planted-shard-of-live",
    source: "Do not limit events to the shard",
    bug: "The initial state is that of the shard, and later events are those of all keys.",
    shows: "An object is in several shards.",
    seed: { seed: 10001, message: "violates Reliable" },
    mutations: [
      {
        file: "src/cacher/state/filter.ts",
        find: "    if (this.shard !== undefined && !this.shard.includes(node.keyHash)) return undefined;\n",
        replace: "",
      },
    ],
  },
  {
    id: "planted-view-deleted",
    source: "Do not leave the value out of a deletion",
    bug: "A deletion in the view of keys has the value of the object.",
    shows: "The view is not the stream without values.",
    seed: { seed: 10001, message: "violates Filter" },
    mutations: [
      {
        file: "src/cacher/state/filter.ts",
        find: "      this.#shownInEvent(object),\n",
        replace: '      type === "DELETED" ? object : this.#shownInEvent(object),\n',
      },
    ],
  },
  {
    id: "planted-count",
    source: "Count objects without looking at selectors",
    bug: "The count of objects has those that selectors do not select.",
    shows: "A List has fewer objects than its count.",
    seed: { seed: 10001, message: "violates Linearizable" },
    mutations: [
      {
        file: "src/cacher/list/list-chunk.ts",
        find: "if (!filter.leavesOut(object.key) && filter.matches(object)) count++;",
        replace: "if (!filter.leavesOut(object.key)) count++;",
      },
    ],
  },
  {
    id: "planted-event-types",
    source: "Filter events by the type that etcd's event has",
    bug: "Events are filtered by their type before selectors are applied.",
    shows: "An object that comes into view, or leaves it, is missing.",
    seed: { seed: 10001, message: "violates Reliable" },
    mutations: [
      {
        file: "src/cacher/state/filter.ts",
        find: "    if (node.isRaw && !this.rawKeys) return undefined;\n    if (this.shard",
        replace:
          "    if (node.isRaw && !this.rawKeys) return undefined;\n    if (node.event !== undefined && !this.delivers(node.event)) return undefined;\n    if (this.shard",
      },
    ],
  },
  {
    id: "planted-range-index",
    source: "Find the watches of ranges by the ends of their own ranges alone",
    bug: "The index of ranges leaves a part out by the end of its first range, not by the largest end in it.",
    shows: "A watch of a range misses events.",
    seed: { seed: 60001, message: "violates Reliable" },
    mutations: [
      {
        file: "src/cacher/dispatch/interval-index.ts",
        find: "if (!isBefore(key, node.end)) return 1;",
        replace: "if (!isBefore(key, node.interval.to)) return 1;",
      },
    ],
  },
  {
    id: "planted-range-end",
    source: "Include the end of a range",
    bug: "A range has the key that it ends at.",
    shows: "A watch of a range has events of a key outside of it.",
    seed: { seed: 60004, message: "violates Filter" },
    mutations: [
      {
        file: "src/storage/storage.ts",
        find: "(to === undefined || compareKeys(key, to) < 0);",
        replace: "(to === undefined || compareKeys(key, to) <= 0);",
      },
    ],
  },
  {
    id: "planted-shown-as-other",
    source: "Share what an event shows between all projections",
    bug: "What one projection has made of an object is taken for what any of them makes of it.",
    shows: "A watch of attributes receives the parts of a value that another watch has asked for.",
    seed: { seed: 60001, message: "violates Filter" },
    mutations: [
      {
        file: "src/cacher/request/recently-shown.ts",
        find: "this.#shown.get(object)?.byProjection.get(projection) ??",
        replace: "this.#shown.get(object)?.byProjection.values().next().value ??",
      },
    ],
  },
  {
    id: "planted-previous-whole",
    source: "Send the whole previous object in any view",
    bug: "The view of an event does not concern the object before it.",
    shows: "The view is not the stream with bytes left out.",
    seed: { seed: 60001, message: "violates Previous" },
    mutations: [
      {
        file: "src/cacher/state/filter.ts",
        find: "previous && this.#shownInEvent(previous),",
        replace: "previous,",
      },
    ],
  },
  {
    id: "planted-order-ties",
    source: "Continue an ordered list behind the revision of its last object",
    bug: "A page begins behind all objects that have the revision of the last one of the page before.",
    shows: "Objects of one transaction are missing in a list by revision.",
    seed: { seed: 60001, message: "violates Linearizable" },
    mutations: [
      {
        file: "src/cacher/list/ordered-page.ts",
        find: "return order > 0 || (order === 0 && compareKeys(object.key, after.key) > 0);",
        replace: "return order > 0;",
      },
    ],
  },
  {
    id: "planted-history-page",
    source: "Begin the next page of a history behind the change that did not fit",
    bug: "The change that did not fit a page of a history is not on the next one either.",
    shows: "The history of a key has a gap.",
    seed: { seed: 60004, message: "violates Complete" },
    mutations: [
      {
        file: "src/storage/etcd/key-history.ts",
        find: "if (!page.addPut(object)) return page.continued(revision, at);",
        replace:
          "if (!page.addPut(object)) return page.continued(revision, object.modRevision - 1);",
      },
    ],
  },
  {
    id: "planted-history-lives",
    source: "End a history at the creation of the object",
    bug: "Deletions before the newest creation of an object are not looked for.",
    shows: "A history has only the last life of its key, and says that there was nothing before.",
    seed: { seed: 60000, message: "violates Complete" },
    mutations: [
      {
        file: "src/storage/etcd/key-history.ts",
        find: "if (isCreation(object)) object = undefined;",
        replace: "if (isCreation(object)) return page.finished(revision, 1);",
      },
    ],
  },
  {
    id: "planted-history-compacted",
    source: "Take a history that was compacted between two pages for a complete one",
    bug: "The last page does not say that older changes were compacted before it was read.",
    shows: "A client takes what is left of a history for all of it.",
    seed: { seed: 60157, message: "violates Complete" },
    mutations: [
      {
        file: "src/server/services/history-method.ts",
        find: 'const oldestRevision = Number(error.metadata["oldest_revision"] ?? page.upTo);',
        replace: "const oldestRevision = 1;",
      },
    ],
  },
  {
    id: "planted-compressed-page",
    source: "Put compressed parts alone into a compressed page",
    bug: "A page that is sent compressed lacks the objects that were not compressed.",
    shows: "A List lacks objects for clients that accept compressed responses.",
    seed: { seed: 60001, message: "violates Linearizable" },
    mutations: [
      {
        file: "src/server/services/compressed-frames.ts",
        find: "...encoded.flatMap((plain, i) => [parts[i] ?? plain].flat()),",
        replace: "...encoded.flatMap((_, i) => parts[i] ?? []),",
      },
    ],
  },
  {
    id: "planted-request-id",
    source: "Do not remember the ids of transactions",
    bug: "A transaction that is repeated with its id is applied again.",
    shows:
      "A client that repeats a write of unknown outcome writes twice, or is refused by its own first write.",
    tests: [
      {
        file: "test/storage/store/transact.test.ts",
        name: "with an id is applied once",
        message: "expected false to be true",
      },
    ],
    mutations: [
      {
        file: "src/storage/etcd/etcd-store.ts",
        find: 'const isMarked = requestId !== "" && !validateOnly && operations.length > 0;',
        replace:
          "const isMarked = requestId.length === Infinity && !validateOnly && operations.length > 0;",
      },
    ],
  },
  {
    id: "planted-delete-prefix-twice",
    source: "Delete the keys of a prefix in two transactions",
    bug: "A DeletePrefix deletes the first keys of the prefix in a transaction of their own, before the others.",
    shows: "A watch and a read have half of a deletion, and a repeated request another count.",
    seed: { seed: 100001, message: "violates Atomic" },
    mutations: [
      {
        file: "src/storage/etcd/etcd-store.ts",
        find: "const deletions = ranges.map((range) => ({ request_delete_range: range }));",
        replace: `const deletions = ranges.map((range) => ({ request_delete_range: range }));
    for (const { key } of ranges) {
      const first = { key, range_end: Buffer.concat([key, Buffer.from("2")]) };
      const half = { compare: [], success: [{ request_delete_range: first }], failure: [] };
      await this.#writes.write(half, 0n, request);
    }`,
      },
    ],
  },
  {
    id: "planted-batch-get-revisions",
    source: "Read each object of a BatchGet at a revision of its own",
    bug: "The objects of a BatchGet are read one by one, each at the newest revision.",
    shows: "A client reads half of a transaction.",
    seed: { seed: 100001, message: "violates Atomic" },
    mutations: [
      {
        file: "src/server/services/batch-get-method.ts",
        find: 'const required = revision === undefined ? at : ({ match: "EXACT", revision } as const);',
        replace: "const required = at;",
      },
      {
        file: "src/server/services/batch-get-method.ts",
        find: "return resource.get(get, reached?.caches.get(resource));",
        replace: "return resource.get(get);",
      },
      {
        file: "src/server/services/batch-get-method.ts",
        find: "const slice = positions.splice(0, revision === undefined ? 1 : readsAtOnce);",
        replace: "const slice = positions.splice(0, 1);",
      },
    ],
  },
  {
    id: "planted-unasked-keep-alive",
    source: "Answer the renewal of a lease without asking the store",
    bug: "A renewal is answered with the length of the lease, and etcd does not receive it.",
    shows: "A client relies on a lease that has ended.",
    seed: { seed: 110000, message: "violates Leased" },
    mutations: [
      {
        file: "src/storage/lease-renewals.ts",
        find: "if (leases.length === 0) return Promise.resolve([]);",
        replace: "if (leases.length >= 0) return Promise.resolve(leases.map(() => 2_000));",
      },
    ],
  },
  {
    id: "planted-dropped-compare",
    source: "Leave out the last compare of a transaction",
    bug: "The last compare of a transaction is not sent to etcd.",
    shows: "A transaction is applied although one of its compares does not hold.",
    seed: { seed: 100001, message: "violates Transaction" },
    mutations: [
      {
        file: "src/storage/etcd/transaction.ts",
        find: "return this.request.compares.map((compare, i) => compareOf(compare, this.#compareKey(i)));",
        replace:
          "return this.request.compares.slice(0, -1).map((compare, i) => compareOf(compare, this.#compareKey(i)));",
      },
    ],
  },
  {
    id: "planted-lock-for-all",
    source: "Give a lock to each that asks for it",
    bug: "A Mutex does not wait for the keys before its own.",
    shows: "Two clients hold a lock at the same time.",
    seed: { seed: 110002, message: "violates Exclusive" },
    mutations: [
      {
        file: "src/client/coordination/mutex.ts",
        find: "if (before === undefined) return true;",
        replace: "if (before === undefined || before.revision > 0) return true;",
      },
    ],
  },
];
