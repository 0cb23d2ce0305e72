import type { CorpusEntry } from "./entry.ts";

const upstreamWatches = "src/etcd-api/watch/upstream-watches.ts";
const clientWatch = "src/etcd-api/watch/client-watch.ts";
const issues = "https://github.com/etcd-io/etcd/issues/";
const pulls = "https://github.com/etcd-io/etcd/pull/";
const kine = "https://github.com/k3s-io/kine/";

/** Bugs of etcd's own proxy and of kine, which serve etcd's API as this service does. */
export const grpcProxyEntries: readonly CorpusEntry[] = [
  {
    id: "grpc-proxy-5984",
    source: `${pulls}5984`,
    bug: "A watcher that is moved to a shared watch receives events a second time.",
    shows: "A watch that a cache takes over from etcd repeats events.",
    tests: [
      {
        file: "test/etcd-api/watch/client-watch.test.ts",
        name: "that a cache takes over from etcd continues behind what etcd's has sent",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: clientWatch,
        find: "    this.from = Math.max(this.from, this.sent + 1);\n",
        replace: "",
      },
    ],
  },
  {
    id: "grpc-proxy-6852",
    source: `${pulls}6852`,
    bug: "A watch with a start revision begins after the revision of the response that creates it.",
    shows: "Events between the start revision and the creation are missing.",
    tests: [
      {
        file: "test/etcd-api/watch/client-watch.test.ts",
        name: "from revision 5 on begins there, whatever etcd's revision is",
        message: "expected [ 10, 9 ] to deeply equal [ 5, 4 ]",
      },
    ],
    mutations: [
      {
        file: clientWatch,
        find: "this.from = startRevision === 0 ? revision + 1 : startRevision;",
        replace: "this.from = revision + 1;",
      },
    ],
  },
  {
    id: "grpc-proxy-21881",
    source: `${pulls}21881`,
    bug: "The client gets `created` again when the proxy opens its watch at etcd again.",
    shows:
      "clientv3 assigns `created` to the next watch of the stream: events come on another watch.",
    tests: [
      {
        file: "test/etcd-api/watch/upstream-watches.test.ts",
        name: "the client does not receive `created` again when etcd continues a watch",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: upstreamWatches,
        find: "      if (canceled) this.#sendLast(watch, message, fields);\n      return;",
        replace:
          "      if (canceled) this.#sendLast(watch, message, fields);\n      else this.#stream.forward({ watch, parts: withFields(ownBytes(message), replacedId(watch)), fragment: false, sent: undefined, isLast: false });\n      return;",
      },
    ],
  },
  {
    id: "grpc-proxy-21813",
    source: `${issues}21813`,
    bug: "A watcher that joins a shared watch at the wrong moment receives nothing of it.",
    shows:
      "A watcher that joins during a dispatch round misses revisions that the round takes afterwards.",
    tests: [
      {
        file: "test/cacher/dispatch/dispatcher.test.ts",
        name: "A watcher that joins while a revision is evaluated gets the next revision in a later round",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/cacher/dispatch/dispatcher.ts",
        find: "if (this.#joinedInRound.size > 0 || evaluations >= maxEvaluationsPerRound) break;",
        replace: "if (evaluations >= maxEvaluationsPerRound) break;",
      },
    ],
  },
  {
    id: "grpc-proxy-18231",
    source: `${issues}18231`,
    bug: "etcd cancels a watch, and the client's stays open without events.",
    shows: "The same: the client waits for good.",
    tests: [
      {
        file: "test/etcd-api/watch/upstream-watches.test.ts",
        name: "a watch that etcd ends is ended for its client, too",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: upstreamWatches,
        find: "      this.#sendLast(watch, message, replacedId(watch));\n      return;",
        replace: "      return;",
      },
    ],
  },
  {
    id: "grpc-proxy-10650",
    source: `${issues}10650`,
    bug: "A watch that a client opens again after a compaction joins the shared watch that etcd has cancelled.",
    shows: "A watch is created on a stream to etcd that was closed, and the client waits for good.",
    tests: [
      {
        file: "test/etcd-api/watch/upstream-responses.test.ts",
        name: "ends when it had no watch for two checks in a row, and another one is opened for the next",
        message: "expected",
      },
    ],
    mutations: [{ file: upstreamWatches, find: "      this.#call = undefined;\n", replace: "" }],
  },
  {
    id: "grpc-proxy-9839",
    source: `${issues}9839`,
    bug: "Watches without a start revision are not shared: each client has its own at etcd, until etcd hangs.",
    shows: "The same.",
    tests: [
      {
        file: "test/etcd-api/watch.test.ts",
        name: "is one watch at etcd, however many clients have it",
        message: "to be 2",
      },
    ],
    mutations: [
      {
        file: "src/etcd-api/watch/watch-call.ts",
        find: "const watch = new ClientWatch(this, request, range);",
        replace:
          "const watch = new ClientWatch(this, request, request.startRevision > 0 ? range : undefined);",
      },
    ],
  },
  {
    id: "grpc-proxy-19710",
    source: `${issues}19710`,
    bug: "Progress requests are not answered.",
    shows: "A Kubernetes API server in front of it can't serve consistent reads from its cache.",
    tests: [
      {
        file: "test/etcd-api/watch.test.ts",
        name: "on request is of a revision up to which everything was sent",
        message: "timed out",
      },
    ],
    mutations: [
      {
        file: "src/etcd-api/watch/watch-call.ts",
        find: 'else if (request.kind === "progress") this.requestProgress();',
        replace: "",
      },
    ],
  },
  {
    id: "kine-731",
    source: `${kine}issues/731`,
    bug: "Progress names a revision while its events wait in a buffer for the client.",
    shows: "A client that resumes from the progress misses the events, for good.",
    tests: [
      {
        file: "test/cacher/watch/positions.test.ts",
        name: "is not known while an event waits to be read",
        message: "to be undefined",
      },
    ],
    mutations: [
      {
        file: "src/cacher/watch/cache-watcher.ts",
        find: "if (!this.#isLive || this.#buffer.length > 0) return undefined;",
        replace: "if (!this.#isLive) return undefined;",
      },
    ],
  },
  {
    id: "kine-602",
    source: `${kine}pull/602`,
    bug: "Progress names the store's current revision before the watch has been sent its events.",
    shows: "A watch that is created behind a progress request is reported as synced.",
    tests: [
      {
        file: "test/etcd-api/watch/upstream-watches.test.ts",
        name: "an answer that etcd sends behind `created` of a later watch is not progress of that watch",
        message: "'a@9', 'b@9'",
      },
    ],
    mutations: [
      {
        file: upstreamWatches,
        find: "if (this.#answers > watch.requestsBefore) watch.progressed = revision;",
        replace: "if (true) watch.progressed = revision;",
      },
    ],
  },
  {
    id: "kine-568",
    source: `${kine}pull/568`,
    bug: "Progress with revision 0 is sent.",
    shows: "A watch of etcd whose progress is not known is reported as synced.",
    tests: [
      {
        file: "test/etcd-api/watch/client-watch.test.ts",
        name: "is not synced before etcd has said how far it is",
        message: "to be undefined",
      },
    ],
    mutations: [
      {
        file: clientWatch,
        find: "return this.isSettled && progressed > 0 ? Math.max(progressed, this.sent) : undefined;",
        replace: "return this.isSettled ? Math.max(progressed, this.sent) : undefined;",
      },
    ],
  },
  {
    id: "kine-543",
    source: `${kine}pull/543`,
    bug: "A watch that starts at the next revision gets no progress while nothing is written.",
    shows:
      "The same for a watch of a cache. With the bug, progress from before its start revision is sent.",
    tests: [
      {
        file: "test/etcd-api/watch/client-watch.test.ts",
        name: "is not reported as synced below its start revision",
        message: "expected true to be false",
      },
    ],
    mutations: [
      {
        file: clientWatch,
        find: "return revision >= Math.max(this.request.startRevision, this.from - 1);",
        replace: "return true;",
      },
    ],
  },
];
