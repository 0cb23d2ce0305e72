import type { CorpusEntry } from "./entry.ts";

const eventWindow = "src/cacher/state/event-window.ts";
const watchOpener = "src/cacher/watch/watch-opener.ts";
const dispatcher = "src/cacher/dispatch/dispatcher.ts";
const cacheWatcher = "src/cacher/watch/cache-watcher.ts";
const deltaFifo = "src/client/informer/delta-fifo/delta-fifo.ts";
const issues = "https://github.com/kubernetes/kubernetes/issues/";
const pulls = "https://github.com/kubernetes/kubernetes/pull/";

/** Bugs of the API server's watch cache, and of client-go's reflectors and informers. */
export const kubernetesEntries: readonly CorpusEntry[] = [
  {
    id: "kubernetes-49992",
    source: `${pulls}49992`,
    bug: "An empty event window accepts a watch from one revision too early.",
    shows: "The watch misses the event at the window's first revision.",
    tests: [
      {
        file: "test/cacher/state/event-window.test.ts",
        name: "can be resumed after 6: false",
        message: "to be undefined",
      },
    ],
    mutations: [
      {
        file: eventWindow,
        find: "if (revision < this.#floor.revision) return undefined;",
        replace: "if (revision < this.#floor.revision - 1) return undefined;",
      },
    ],
  },
  {
    id: "kubernetes-68065",
    source: `${pulls}68065`,
    bug: "A watch from the revision of the first list is refused as too old, although nothing is missing.",
    shows: "Clients relist without need.",
    tests: [
      {
        file: "test/cacher/state/event-window.test.ts",
        name: "can be resumed after 7: true",
        message: "expected undefined to be EventNode",
      },
    ],
    mutations: [
      {
        file: eventWindow,
        find: "if (revision < this.#floor.revision) return undefined;",
        replace: "if (revision <= this.#floor.revision) return undefined;",
      },
    ],
  },
  {
    id: "kubernetes-24004",
    source: `${issues}24004`,
    bug: "A watch from a revision begins with the event at that revision.",
    shows: "A resumed stream repeats its last event.",
    tests: [
      {
        file: "test/cacher/state/event-window.test.ts",
        name: "may split a revision, after which a watch can be resumed, but not before",
        message: "to be EventNode",
      },
    ],
    mutations: [
      {
        file: eventWindow,
        find: "if (this.#at(middle).revision <= revision) low = middle + 1;",
        replace: "if (this.#at(middle).revision < revision) low = middle + 1;",
      },
    ],
  },
  {
    id: "kubernetes-116122",
    source: `${issues}116122`,
    bug: "A watch that is opened while the cache is filled again misses what happened meanwhile.",
    shows: "Watches of the old state continue behind the new one, over a gap.",
    tests: [
      {
        file: "test/cacher/relist.test.ts",
        name: "ends a concurrent one of EVERY_EVENT that is still taking its initial state",
        message: "to be 'HISTORY_LOST'",
      },
    ],
    mutations: [
      {
        file: "src/cacher/watchers.ts",
        find: "this.#interrupted = [...this.#watchers];",
        replace:
          'this.#interrupted = [...this.#watchers].filter(({ state: is }) => is !== "starting" && is !== "initial");',
      },
    ],
  },
  {
    id: "kubernetes-73845",
    source: `${pulls}73845`,
    bug: "After its initial events a watch receives those again that were buffered meanwhile.",
    shows: "A client goes back in time.",
    tests: [
      {
        file: "test/cacher/watch/positions.test.ts",
        name: "continues after the state, also if its events are in the event window",
        message: "to deeply equal",
      },
    ],
    seed: { seed: 1, message: "violates Bookmarkable" },
    mutations: [
      {
        file: watchOpener,
        find: 'const successor = cursorAfter(node, watcher, this.#sources, "initial");',
        replace:
          'const successor = cursorAfter(this.#context.cache.eventWindow.floor, watcher, this.#sources, "initial");',
      },
    ],
  },
  {
    id: "kubernetes-58547",
    source: `${pulls}58547`,
    bug: "DELETED carries the revision of the object's last change, not that of the deletion.",
    shows: "A client that resumes from it receives older events again.",
    tests: [
      {
        file: "test/cacher/state/watch-cache.test.ts",
        name: "gives a deleted object its last content, regardless of the event",
        message: "to deeply equal",
      },
    ],
    seed: { seed: 1, message: "violates Honest" },
    mutations: [
      {
        file: "src/cacher/state/watch-cache.ts",
        find: "const deleted = previous.deletedAt(event.revision);",
        replace: "const deleted = previous;",
      },
    ],
  },
  {
    id: "kubernetes-58547-filter",
    source: `${pulls}58547`,
    bug: "The same for an object that no longer matches the selector.",
    shows: "The same, for clients with a selector.",
    tests: [
      {
        file: "test/cacher/state/filter.test.ts",
        name: "delivers an object that ceases to match with its last matching content, at the revision of the change",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/cacher/state/filter.ts",
        find: 'return new WatchEvent("DELETED", previous.deletedAt(event.revision), previous);',
        replace: 'return new WatchEvent("DELETED", previous, previous);',
      },
    ],
  },
  {
    id: "kubernetes-12721",
    source: `${pulls}12721`,
    bug: "The watch cache does not know what an object was before, so a selector can't distinguish ADDED from MODIFIED.",
    shows: "An object that begins to match arrives as MODIFIED.",
    tests: [
      {
        file: "test/cacher/state/filter.test.ts",
        name: "a change from no match to a match",
        message: "expected 'MODIFIED k=yes@9' to be 'ADDED k=yes@9'",
      },
    ],
    seed: { seed: 1, message: "violates Filter" },
    mutations: [
      {
        file: "src/cacher/state/filter.ts",
        find: "const before = previous !== undefined && predicate(previous);",
        replace: 'const before = type !== "ADDED";',
      },
    ],
  },
  {
    id: "kubernetes-125288",
    source: `${pulls}125288`,
    bug: "A bookmark names a revision whose events have not been dispatched.",
    shows: "A client that resumes from the bookmark misses them.",
    tests: [
      {
        file: "test/cacher/dispatch/dispatched-revisions.test.ts",
        name: "has no bookmark above the events that it has offered",
        message: "expected 3 to be 2",
      },
    ],
    seed: { seed: 231, message: "violates Bookmarkable" },
    mutations: [
      {
        file: dispatcher,
        find: "this.#bookmark = new WatchBatch(this.#settledRevision, []);",
        replace: "this.#bookmark = new WatchBatch(this.#cache.revision, []);",
      },
    ],
  },
  {
    id: "kubernetes-117014",
    source: `${pulls}117014`,
    bug: "A watcher that could not take its bookmark is not tried again.",
    shows: "A relay below waits for progress that does not come.",
    tests: [
      {
        file: "test/cacher/watch/positions.test.ts",
        name: "that the buffer has no room for comes when the buffer has been read",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: cacheWatcher,
        find: "if (!this.bookmark(bookmark, bounds)) this.#isBookmarkRequested = true;",
        replace: "this.bookmark(bookmark, bounds);",
      },
    ],
  },
  {
    id: "kubernetes-127500",
    source: `${pulls}127500`,
    bug: "A watch with initial events begins from a state that is older than one that was served before.",
    shows: "A client goes back in time.",
    tests: [
      {
        file: "test/cacher/watch/watching.test.ts",
        name: "begins with no state older than the cache at the request:",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: watchOpener,
        find: "Math.max(required, cachedRevision),",
        replace: "required,",
      },
    ],
  },
  {
    id: "kubernetes-122830",
    source: `${pulls}122830`,
    bug: "An initial state without a required revision comes from a cache that is behind.",
    shows: "A watch does not reflect a write that completed before it.",
    tests: [
      {
        file: "test/cacher/watch/positions.test.ts",
        name: "begins with a state that has every write from before it, also one that the cache has not received",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: watchOpener,
        find: 'if (newerThan === undefined) return { match: "LINEARIZABLE" };',
        replace: 'if (newerThan === undefined) return { match: "ANY" };',
      },
    ],
  },
  {
    id: "kubernetes-39078",
    source: `${pulls}39078`,
    bug: "A watcher whose buffer is full misses an event, and receives later ones.",
    shows: "The same.",
    tests: [
      {
        file: "test/cacher/watch/watching.test.ts",
        name: "stalls when its buffer is full, and catches up without gap or repetition",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: dispatcher,
        find: "watcher.stall(lastUpTo(before?.revision ?? 0, from));",
        replace: "watcher.stall(this.#position);",
      },
    ],
  },
  {
    id: "kubernetes-123072",
    source: `${issues}123072`,
    bug: "A watch cache loses deletions, and nothing notices it.",
    shows: "An object that was deleted stays in the cache. The consistency check must find it.",
    tests: [
      {
        file: "test/cacher/consistency-checker.test.ts",
        name: "that finds a key that the store lacks stops serving, ends streams with HISTORY_LOST and relists",
        message: "to be an instance of WatchFanoutError",
      },
    ],
    mutations: [
      {
        file: "src/cacher/consistency-checker.ts",
        find: "return compareObjects(cached.next().value ?? undefined, undefined, revision);",
        replace: "return undefined;",
      },
    ],
  },
  {
    id: "kubernetes-115658",
    source: `${issues}115658`,
    bug: "A relist misses the deletion of an object that is only in the queue.",
    shows: "An informer keeps it for good.",
    tests: [
      {
        file: "test/client/informer/delta-fifo/delta-fifo.test.ts",
        name: "detects deletions in a relist, for objects that are known, in progress, or queued",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: deltaFifo,
        find: "for (const keys of [this.#known.keys(), this.#queue.keys(), this.#taken.keys()]) {",
        replace: "for (const keys of [this.#known.keys()]) {",
      },
    ],
  },
  {
    id: "kcp-4364",
    source: "https://github.com/kcp-dev/kcp/pull/4364",
    bug: "The store of an informer drops a deletion whose final state is unknown.",
    shows: "What was deleted before a relist stays in the Indexer.",
    tests: [
      {
        file: "test/client/informer/informer-changes.test.ts",
        name: "is compensated by exactly the changed, new and deleted objects",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/client/informer/indexer-updates.ts",
        find: 'if (delta.type === "Deleted") this.#delete(delta.object);',
        replace:
          'if (delta.type === "Deleted" && delta.object instanceof DeletedFinalStateUnknown) continue;\n      if (delta.type === "Deleted") this.#delete(delta.object);',
      },
    ],
  },
  {
    id: "kubernetes-32125",
    source: `${pulls}32125`,
    bug: "A resync puts the known object behind a newer one that is queued.",
    shows: "An informer goes back to the older object.",
    tests: [
      {
        file: "test/client/informer/delta-fifo/delta-fifo.test.ts",
        name: "hands out all objects on a resync, except those with other deltas",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: deltaFifo,
        find: "if (this.#queue.get(key) !== undefined || this.#taken.has(key)) continue;",
        replace: "",
      },
    ],
  },
  {
    id: "kubernetes-86015",
    source: `${pulls}86015`,
    bug: "An object that a relist brings is taken for a resync of the known one.",
    shows: "Handlers do not get the changes that happened before a relist.",
    tests: [
      {
        file: "test/client/informer/informer-changes.test.ts",
        name: "is compensated by exactly the changed, new and deleted objects",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/client/informer/indexer-updates.ts",
        find: "return before.modRevision === listed.modRevision && !this.#keysToRecheck.has(listed.key);",
        replace: "return true;",
      },
    ],
  },
  {
    id: "kubespawner-81",
    source: "https://github.com/jupyterhub/kubespawner/pull/81",
    bug: "The watch after a list begins from now, not from the list's revision.",
    shows: "What happens between list and watch is missing.",
    tests: [
      {
        file: "test/reflector/over-memory.test.ts",
        name: "delivers the state at one revision, whatever is written between its pages",
        message: "to deeply equal",
      },
    ],
    seed: { seed: 3, message: "violates Honest" },
    mutations: [
      {
        file: "src/reflector/reflector.ts",
        find: "afterRevision: revision,",
        replace: "afterRevision: undefined,",
      },
    ],
  },
  {
    id: "kubernetes-107133",
    source: `${issues}107133`,
    bug: "A read of a revision that the cache does not reach fails while nothing is written.",
    shows: "A list NOT_OLDER_THAN a revision of another resource waits until its time is over.",
    tests: [
      {
        file: "test/cacher/freshness/revision-waiters.test.ts",
        name: "is requested every 100 ms while a request waits, and at once for a new one",
        message: "to deeply equal",
      },
    ],
    mutations: [
      {
        file: "src/cacher/freshness/revision-waiters.ts",
        find: "      this.#requestProgress();\n",
        replace: "",
      },
    ],
  },
];
