import type { Bound } from "./bound.ts";

export const etcdServerBounds: readonly Bound[] = [
  {
    what: "watch streams of the etcd API over the embedded store",
    owners: ["EtcdServer"],
    bound: "by open streams: only the etcd API of clients can connect",
    per: "process",
    atBound: "",
    shownBy: ["has the store's socket in a folder of its own, which goes with it"],
  },
  {
    what: "watches of a stream, those that a compaction has ended, and their responses",
    owners: ["StoreWatchCall"],
    bound:
      "20,000, 1,000 ended ones; 256 KiB and a batch that were not accepted, then watches stay where they are in the history; 64 answers, then requests are not read",
    per: "stream",
    atBound: "refused with `etcdserver: too many requests`; a watch ends as after a compaction",
    shownBy: [
      "reads for a slow client from the history, and ends its watch when that is compacted",
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
