import type { Bound } from "./bound.ts";

export const etcdServerBounds: readonly Bound[] = [
  {
    what: "calls of the etcd API over the embedded store",
    owners: ["EtcdServer"],
    bound: "by open streams: only the etcd API of clients makes them",
    per: "process",
    atBound: "",
    shownBy: ["gets no further calls once it is closed: they fail as without a connection"],
  },
  {
    what: "responses of such a call that are not read, and requests that are not handled",
    owners: ["InProcessCall"],
    bound:
      "64 KiB and what comes with it, counted with responses that are not accepted; one request of 2 MiB, counted with incomplete requests; while its handler waits, its caller is to send nothing",
    per: "call",
    atBound:
      "its handler waits; a larger request is refused with `grpc: received message larger than max`",
    shownBy: [
      "200 unread watches of the past delay no put and no other watch, and hold little",
      "What has come for a caller that does not read it is counted with the call",
      "to requests that are too large, compressed, or missing",
    ],
  },
  {
    what: "watches of a stream, those that a compaction has ended, and their responses",
    owners: ["StoreWatchCall"],
    bound:
      "20,000, 1,000 ended ones; one batch behind what there is no room for, and one chunk of the journal, 256 KiB each, then watches stay where they are in the history; 64 answers, then requests are not read; 32 answers and batches at once, those of the past in the event loop's time slices",
    per: "stream",
    atBound: "refused with `etcdserver: too many requests`; a watch ends as after a compaction",
    shownBy: [
      "reads for a slow client from the history, and ends its watch when that is compacted",
      "An unread stream has one chunk of the journal read, however many watches of the past it has",
    ],
  },
  {
    what: "objects that a transaction reads, compares and deletes, and keys that it writes",
    owners: ["TxnRun"],
    bound: "100,000; 1.5 MiB of a request",
    per: "request",
    atBound: "refused with `etcdserver: too many operations in txn request`",
    shownBy: ["refuses a transaction that reads more than 100,000 objects"],
  },
  {
    what: "objects of a Range of the etcd API over the embedded store",
    owners: ["RangeSelection"],
    bound: "by the stored data; 1 GiB of values of all calls",
    per: "process",
    atBound: "refused with `etcdserver: too many requests`",
    shownBy: ["to random requests of KV and Lease"],
  },
];
