import type { CorpusEntry } from "./entry.ts";

const upstreamWatches = "src/etcd-api/watch/upstream-watches.ts";

/** Defects that this project has had. */
export const ownEntries: readonly CorpusEntry[] = [
  {
    id: "own-progress-queue",
    source: "Answer a progress request that comes before the answer to an earlier one",
    bug: "A progress request that came before the answer to an earlier one was not answered.",
    shows: "The same.",
    tests: [
      {
        file: "test/etcd-api/watch-order.test.ts",
        name: "A progress request that comes before the answer to an earlier one gets an answer from after it",
        message: "timed out",
      },
    ],
    mutations: [
      {
        file: "src/etcd-api/watch/watch-progress.ts",
        find: "if (this.#isRepeated) this.request();",
        replace: "",
      },
    ],
  },
  {
    id: "own-progress-created",
    source:
      "Answer a progress request although a watch was created behind it, and ask etcd again if its member is behind",
    bug: "A watch that was created behind a progress request kept it from being answered.",
    shows: "The same.",
    tests: [
      {
        file: "test/etcd-api/watch/upstream-watches.test.ts",
        name: "an answer that etcd sends behind `created` of a later watch is not progress of that watch",
        message: "expected 1 to be 2",
      },
    ],
    mutations: [
      {
        file: upstreamWatches,
        find: "if (!isOfAll) this.requestProgress();",
        replace: "",
      },
    ],
  },
  {
    id: "own-previous-compacted",
    source: "Leave out the previous value of a cached event where etcd has compacted it",
    bug: "An event of a cache had a previous value that etcd had compacted, and would not have sent.",
    shows: "A client of etcd's API sees more than etcd sends.",
    tests: [
      {
        file: "test/etcd/wire/watch-events.test.ts",
        name: "the previous value of an event is left out where etcd has compacted it, and needed elsewhere",
        message: "expected [ 4 ] to deeply equal [ undefined ]",
      },
    ],
    mutations: [
      {
        file: "src/etcd/wire/watch-events.ts",
        find: "if (!options.withPrevious || isCreated || event.revision <= compacted) {",
        replace: "if (!options.withPrevious || isCreated) {",
      },
    ],
  },
  {
    id: "own-restored-watch",
    source:
      "Bound what watch streams hold, and begin watches at the cache's revision after a restore of etcd",
    bug: "A watch of etcd's API asked the cache for a revision above its own, of a history that was restored away.",
    shows: "It is cancelled again and again.",
    tests: [
      {
        file: "test/etcd-api/watch/client-watch.test.ts",
        name: "asks a cache for no revision above its own, as after a restore of etcd",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/etcd-api/watch/client-watch.ts",
        find: "afterRevision: Math.min(this.from - 1, cacher.revision),",
        replace: "afterRevision: this.from - 1,",
      },
    ],
  },
  {
    id: "own-refusals",
    source: "Give a resume point up after ten refusals, not within a second of a proxy's restart",
    bug: "A cache gave its resume point up within a second of a proxy's restart.",
    shows: "Clients relist without need.",
    tests: [
      {
        file: "test/reflector/reflector.test.ts",
        name: "keeps the resume point if attempts fail with INVALID_REQUEST for ten seconds, as through a proxy that is restarted",
        message: "expected 1 to be +0",
      },
    ],
    mutations: [
      {
        file: "src/reflector/reflector-state.ts",
        find: "const maxRefusals = 10;",
        replace: "const maxRefusals = 3;",
      },
    ],
  },
  {
    id: "own-contract",
    source:
      "Refuse responses that violate the contract, and resume a watch before them at another server",
    bug: "The client library accepted a resume point below the one before from a faulty server.",
    shows: "A client goes back in time.",
    tests: [
      {
        file: "test/client/watch/stream-contract.test.ts",
        name: "must not send a resume point that goes back.",
        message: "expected function to throw an error",
      },
    ],
    mutations: [
      {
        file: "src/client/watch/response-checks.ts",
        find: "if (revision < this.#revision) {",
        replace: "if (false) {",
      },
    ],
  },
  {
    id: "own-chunk-twice",
    source: "Hand out no piece of an initial state twice, and keep no state for a single key",
    bug: "A watcher that waited for a chunk of its initial state got it twice.",
    shows: "An object is delivered twice at one revision.",
    tests: [
      {
        file: "test/cacher/catch-up/initial-state.test.ts",
        name: "delivers no chunk twice if another watcher built it first",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/cacher/catch-up/initial-state.ts",
        find: "if (this.#isBuilding) return undefined;",
        replace: "",
      },
    ],
  },
  {
    id: "own-coalesced-life",
    source: "Coalesce objects that came and went by their revisions",
    bug: "An object that was created and deleted since, without matching, was coalesced to a DELETED.",
    shows: "A client with LATEST_STATE gets DELETED of an object that it never had.",
    tests: [
      {
        file: "test/cacher/catch-up/coalescer.test.ts",
        name: "being created without a match and matching later",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/cacher/catch-up/coalescer.ts",
        find: "return object !== undefined && object.createRevision <= this.#after;",
        replace: "return object !== undefined;",
      },
    ],
  },
  {
    id: "own-history-answers",
    source: "Serve no response from the history before a restore",
    bug: "A response of the store from before a restore was served as one of the new history.",
    shows: "A client mixes two histories.",
    tests: [
      {
        file: "test/cacher/freshness/upstream-reader.test.ts",
        name: "a response from before a restore is not returned once the cache holds the new history",
        message: "to match object",
      },
    ],
    mutations: [
      {
        file: "src/cacher/freshness/upstream-reader.ts",
        find: "if (generation !== history.historyGeneration) throw historyChangePending();",
        replace: "",
      },
    ],
  },
  {
    id: "own-history-fingerprint",
    source: "Find another history by the change that came last, before a watch is resumed",
    bug: "A restored store that had grown past the cache's revision was taken for the same history.",
    shows: "Clients mix two histories.",
    tests: [
      {
        file: "test/reflector/history/store-fingerprint.test.ts",
        name: "finds another history if its last change was made at another revision",
        message: "to match /^history changed",
      },
    ],
    mutations: [
      {
        file: "src/reflector/history-tracker.ts",
        find: "if (!isSame) throw notThisHistory(object);",
        replace: "",
      },
    ],
  },
  {
    id: "own-history-state",
    source: "Compare the whole known state with a store that is resumed from",
    bug: "A restore was not detected if the resource was idle since the snapshot.",
    shows: "Clients mix two histories.",
    tests: [
      {
        file: "test/reflector/history/recent-changes.test.ts",
        name: "detect another store by an old object that is gone without a trace among the newest",
        message: "instead of rejecting",
      },
    ],
    mutations: [
      {
        file: "src/reflector/recent-changes.ts",
        find: "if (!isSame) throw notThisState(revision, found, count);",
        replace: "",
      },
    ],
  },
  {
    id: "own-closed-channel",
    source: "Leave a closed channel closed that was waited for until it connects",
    bug: "A gRPC channel that was closed while it was waited for connected again, until the process ended. The simulation found it.",
    shows: "A replica that drops a member keeps connecting to it.",
    tests: [
      {
        file: "test/base/grpc-channel.test.ts",
        name: "An idle channel connects, and one that is closed meanwhile does not connect again.",
        message: "to not be called with arguments",
      },
    ],
    mutations: [
      {
        file: "src/base/grpc-channel.ts",
        find: "return state === connectivity.SHUTDOWN ? state : channel.getConnectivityState(true);",
        replace: "return channel.getConnectivityState(true);",
      },
    ],
  },
  {
    id: "own-backfill-away",
    source: "Let the backfill of the event window wait while the store is away",
    bug: "The backfill of the event window gave up while the store was away. The simulation found it.",
    shows: "A stream that resumes from before the first list gets REVISION_TOO_OLD.",
    tests: [
      {
        file: "test/reflector/backfill/window-backfill.test.ts",
        name: "waits while the store is away, however often it is asked, and continues then",
        message: "expected 'complete' to be 'running'",
      },
    ],
    mutations: [
      {
        file: "src/reflector/backfill/window-backfill.ts",
        find: 'if (hasReason(error, "UPSTREAM_UNAVAILABLE")) return undefined;',
        replace: "",
      },
    ],
  },
  {
    id: "own-reader-woken",
    source: "Wake the reader of a stream that is closed",
    bug: "A reader that waited was not notified that its stream was closed.",
    shows: "A call stays open after its watch has ended.",
    tests: [
      {
        file: "test/cacher/watch/positions.test.ts",
        name: "that waits is notified when the watch is closed",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/cacher/watch/cache-watcher.ts",
        find: "    this.#buffer.clear();\n    this.#notify();\n  }\n\n  /** Ends the stream with `error` after",
        replace: "    this.#buffer.clear();\n  }\n\n  /** Ends the stream with `error` after",
      },
    ],
  },
  {
    id: "own-after-list",
    source: "Confirm the history of a watch after a list, before its first batch is delivered",
    bug: "A restore between a list and the watch that follows it was not detected. The model found it.",
    shows: "Clients mix two histories.",
    tests: [
      {
        file: "test/reflector/confirming-history.test.ts",
        name: "of a store that was restored before the watch was open delivers nothing",
        message: "'history changed: [b@6] →6 of 6'",
      },
    ],
    mutations: [
      {
        file: "src/reflector/reflector.ts",
        find: ": (signal: AbortSignal) => history.check(signal);",
        replace: ": undefined;",
      },
    ],
  },
  {
    id: "own-store-again",
    source:
      "Check that nothing is compacted before events that a watch of etcd reads from the store again",
    bug: "A watch that had been synced, and fell behind, was not checked for a compaction. The simulation found it.",
    shows: "As etcd-18089, for a watch that is not resumed.",
    tests: [
      {
        file: "test/storage/etcd/watch/protocol.test.ts",
        name: "a watch that was synced, and gets events from the store again, ends if the revision before them is compacted",
        message: "instead of rejecting",
      },
    ],
    mutations: [
      {
        file: "src/storage/etcd/etcd-watch.ts",
        find: "if (first < revision && revision > this.#syncedRevision) this.#syncedRevision = revision;",
        replace: "",
      },
    ],
  },
  {
    id: "own-progress-waiting",
    source:
      "Make progress of a watch of etcd's API when it is sent, so that it is not below events that were sent while it waited",
    bug: "Progress of a watch of etcd's API waited for an answer, and was below the events that were sent meanwhile.",
    shows: "A client that resumes from the progress gets events again.",
    tests: [
      {
        file: "test/etcd-api/watch-order.test.ts",
        name: "Progress of single watches that waits behind the answer to a create request is not below what they are sent meanwhile",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/etcd-api/watch/watch-responses.ts",
        find: "this.#answers.push({ progressOf: watch });",
        replace:
          "this.#answers.push({ frame: this.encode({ watchId: watch.id }, watch.syncedRevision ?? 0), watch: undefined });",
      },
    ],
  },
  {
    id: "own-history-back",
    source:
      "Give each id of etcd's history a generation, so that a replica knows an older one that it has not seen",
    bug: "A second restore brought back an id that was replaced, and it was taken for one that another replica had written. The simulation found it.",
    shows: "One id names two histories.",
    tests: [
      {
        file: "test/etcd/client/history-marker.test.ts",
        name: "is renewed by a replica that has not seen the id that a restore has brought back",
        message: "to not include",
      },
    ],
    mutations: [
      {
        file: "src/etcd/client/history-marker.ts",
        find: "return id !== this.#newest && generation > 0 && generation <= this.#generation;",
        replace: "return false;",
      },
    ],
  },
  {
    id: "own-during-list",
    source:
      "Find a restore of etcd, or an upstream that knows of none, between the requests of a list",
    bug: "A state that was listed after a restore was served under the id from before it.",
    shows: "Clients mix two histories.",
    tests: [
      {
        file: "test/reflector/histories.test.ts",
        name: "that a restore during a list has begun makes that void",
        message: "start: first at 5",
      },
    ],
    mutations: [
      {
        file: "src/reflector/reflector.ts",
        find: "    checkSameHistory(historyId, listedId ?? (await storage.historyId(signal)));\n",
        replace: "",
      },
    ],
  },
  {
    id: "own-relay-server",
    source:
      "Find a restore of etcd, or an upstream that knows of none, between the requests of a list",
    bug: "A relay resumed a watch at a server that had found a restore, as if it knew of it.",
    shows: "Clients mix two histories.",
    tests: [
      {
        file: "test/client/remote/remote-storage.test.ts",
        name: "of a response is that of its server, where another server has found a restore that the first has not.",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/client/remote/remote-storage.ts",
        find: "this.#history.atServer(options.historyId || undefined) ?? this.#history.server;",
        replace: "this.#history.server;",
      },
    ],
  },
  {
    id: "own-progress-end",
    source: "Send progress of all watches behind the end of a watch that it is not about",
    bug: "The progress of a Subscribe stream came before the end of a watch that had kept it waiting. The simulation found it.",
    shows:
      "A client takes the progress for one of that watch as well, and misses what it has not sent.",
    tests: [
      {
        file: "test/server/services/subscribe.test.ts",
        name: "sends progress that has waited for a watch behind the end of that watch",
        message: "to match object",
      },
    ],
    seed: { seed: 15079, message: "violates Reliable" },
    mutations: [
      {
        file: "src/server/services/subscribe/subscribe-stream.ts",
        find: "    this.#forget(watch);\n    this.#answer(endedResponse(watch.key));\n    this.progress.ended(watch);\n",
        replace:
          "    this.#forget(watch);\n    this.progress.ended(watch);\n    this.#answer(endedResponse(watch.key));\n",
      },
    ],
  },
  {
    id: "own-progress-back",
    source: "Send no progress of all watches below the revision that it was requested for",
    bug: "The progress of a Subscribe stream was the last resume point of a watch that had more, and had something to send again. The simulation found it.",
    shows: "The cut does not have a write that was acknowledged before the request.",
    tests: [
      {
        file: "test/server/services/stream-progress.test.ts",
        name: "Progress is not below the store's revision, though a watch that had it has something to send again.",
        message: "to deeply equal",
      },
    ],
    seed: { seed: 10002, message: "violates Cut" },
    mutations: [
      {
        file: "src/server/services/subscribe/stream-progress.ts",
        find: "this.#stream.progressed(this.#target, this.#tag);",
        replace:
          "this.#stream.progressed([...this.#stream.watches.values()].reduce((least, { deliveredRevision }) => Math.min(least, deliveredRevision), this.#target), this.#tag);",
      },
    ],
  },
  {
    id: "own-relay-watch",
    source: "Confirm the history of reads through a server whose watch outlives a restore",
    bug: "A worker took its open watch for a proof of its history, but its main process, which had not found a restore yet, passed its reads on to etcd. The simulation found it.",
    shows: "One id names two histories.",
    tests: [
      {
        file: "test/cacher/freshness/upstream-reader.test.ts",
        name: "no watch begins at its revision",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/reflector/reflector.ts",
        find: "const { watchOutlivesHistory = false } = this.#options.storage;",
        replace: "const watchOutlivesHistory = false;",
      },
    ],
  },
  {
    id: "own-unconfirmed-watch",
    source: "Confirm the history of reads between a list and the first events of its watch",
    bug: "A watch that follows a list, and has delivered nothing yet, was taken for a proof that the store has the history of the list. The simulation found it.",
    shows: "One id names two histories.",
    tests: [
      {
        file: "test/reflector/confirming-history.test.ts",
        name: "finds a restore that came in between",
        message: "resolved",
      },
    ],
    seed: { seed: 61117, message: "violates OneHistory" },
    mutations: [
      {
        file: "src/reflector/reflector.ts",
        find: "if (!this.isFollowed && this.#history.canCheckState) {",
        replace: "if (false as boolean) {",
      },
    ],
  },
  {
    id: "own-unconfirmed-now",
    source: "Confirm the history of a watch from now, and of what the consistency check compares",
    bug: "A watch from now began at the store's revision under the id of the cache's history, while the upstream watch had delivered nothing since the list: the store had been restored in between.",
    shows: "One id names two histories.",
    tests: [
      {
        file: "test/cacher/other-history.test.ts",
        name: "does not begin at a revision of another history",
        message: "to deeply equal []",
      },
    ],
    mutations: [
      {
        file: "src/cacher/watch/watch-opener.ts",
        find: "await upstreamReader.confirmHistory();",
        replace: "",
      },
    ],
  },
  {
    id: "own-compared-histories",
    source: "Confirm the history of a watch from now, and of what the consistency check compares",
    bug: "The consistency check of a relay compared its cache with the state of another server, which had found a restore of etcd first.",
    shows: "A cache that is right is taken for wrong, and all of its streams end.",
    tests: [
      {
        file: "test/cacher/consistency-checker.test.ts",
        name: "takes no difference from a server that names another history, which it may have found first",
        message: "to match object",
      },
    ],
    mutations: [
      {
        file: "src/cacher/consistency-checker.ts",
        find: "checkSameHistory(historyId, page.historyId);",
        replace: "",
      },
    ],
  },
  {
    id: "own-open-connection",
    source: "Take no open watch of etcd for a proof of its history",
    bug: "A watch of etcd that looked open, on a connection whose end had not arrived yet, was taken for a proof that the etcd that answered a read was not restored.",
    shows: "The history of a key mixes two histories of the store.",
    tests: [],
    seed: { seed: 71051, message: "violates OneHistory" },
    mutations: [
      {
        file: "src/storage/etcd/etcd-storage.ts",
        find: "get watchOutlivesHistory(): true {\n    return true;",
        replace:
          "get watchOutlivesHistory(): boolean {\n    return this.#options.followed !== undefined;",
      },
    ],
  },
  {
    id: "own-relayed-request-id",
    source: "Keep the id of a request that a relay passes on",
    bug: "The id of a request was another one when a relay passed the request on.",
    shows: "A write that is repeated at another tier is applied again.",
    tests: [
      {
        file: "test/server/services/parse-transact.test.ts",
        name: "the id of a request stays the same when a relay passes it on, and only then",
        message: "to be",
      },
    ],
    mutations: [
      {
        file: "src/server/services/parse-transact.ts",
        find: 'if (id === "" || (via !== undefined && ofCaller.test(id) && !isLimited())) return id;',
        replace: 'if (id === "") return id;',
      },
    ],
  },
  {
    id: "own-goaway-with-settings",
    source: "Send GOAWAY only once a client has acknowledged the settings",
    bug: "A client that connected while its server was drained got the settings and GOAWAY at once, where grpc-js may lose the latter.",
    shows:
      "The client, or relay, uses the ended connection for all further calls, and never makes another.",
    tests: [
      {
        file: "test/server/shutdown.test.ts",
        name: "sends GOAWAY behind the client's acknowledgement of the settings",
        message: "expected +0 to be undefined",
      },
    ],
    mutations: [
      {
        file: "src/server/http2/connections.ts",
        find: "session.pendingSettingsAck === true",
        replace: "false",
      },
    ],
  },
  {
    id: "own-closed-early",
    source: "Close channels of grpc-js for good",
    bug: "A channel that was closed in the turn in which it began to connect connected later, again and again.",
    shows:
      "A process that has closed a client, or a service that was stopped, has a connection, or tries to.",
    tests: [
      {
        file: "test/base/grpc-channel.test.ts",
        name: "A channel to 127.0.0.1:1 that is closed in the turn in which it begins to connect stays closed.",
        message: "to be 4",
      },
    ],
    seed: { seed: 6529, message: "violates Leak" },
    mutations: [
      {
        file: "src/base/grpc-channel.ts",
        find: "  setImmediate(() => client.close());\n",
        replace: "",
      },
    ],
  },
];
