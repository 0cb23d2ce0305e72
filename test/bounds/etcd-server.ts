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
    what: "objects of responses of the etcd API over the embedded store, until they are encoded",
    owners: ["RangeSelection", "HeldObjects", "KvService"],
    bound:
      "by the stored data; 1 GiB of values of all calls, of which one response above 1 MiB is encoded at a time",
    per: "process",
    atBound: "refused with `etcdserver: too many requests`, if it has more than 64 KiB",
    shownBy: [
      "to random requests of KV and Lease",
      "Transactions hold no more than 1 GiB of objects for their responses, and large ones refuse no small ones",
      "Large responses are encoded one after another, as there are copies of what each holds meanwhile",
    ],
  },
  {
    what: "keys that a transaction deletes, while it is checked",
    owners: ["ChangedKeys"],
    bound: "by the size of its request, 1.5 MiB",
    per: "request",
    atBound: "",
    shownBy: [
      "lets a transaction with 60,000 deletes and puts be checked within the time of a test",
    ],
  },
];
