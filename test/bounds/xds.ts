import type { Bound } from "./bound.ts";

export const xdsBounds: readonly Bound[] = [
  {
    what: "names that a stream of xDS asks for, with what its client has",
    owners: ["XdsSubscription", "Catalog", "XdsStream"],
    bound:
      "`--max-subscribe-watches`, and what a request may have of each kind; counted with parts of requests of open streams",
    per: "stream, connection, process",
    atBound: "the stream ends with TOO_MANY_STREAMS",
    shownBy: [
      "with more names than a stream may have ends with RESOURCE_EXHAUSTED",
      "has the names that it has given up among its own until it learns whether they exist",
      "are cut where they may have any length, and the rest is not held",
    ],
  },
  {
    what: "what a client of xDS has not been sent",
    owners: ["XdsSubscription"],
    bound:
      "the names that have changed, each once; those that it no longer names, as those that it names; 1 response that is not accepted",
    per: "stream",
    atBound: "several changes of a resource are one; a response of more than 1 MiB is several",
    shownBy: [
      "gets what many changes came to while it did not read, not each of them",
      "says whether each name exists that was unsubscribed from beside all, and until then it counts",
      "that would be larger than clients of gRPC accept is several",
    ],
  },
  {
    what: "resources of xDS, and the instances that they are computed from",
    owners: ["Catalog", "Feed", "StoredType", "Services"],
    bound: "objects in the cache; 1,000 of services without instances",
    per: "type",
    atBound: "those of further services without instances are made for each client",
    shownBy: [
      "%s is not served, and the last valid one stays",
      "takes no more memory than is charged for it",
    ],
  },
  {
    what: "changes of xDS that a client which asks for all may be behind",
    owners: ["Catalog"],
    bound: "20,000 names; of what they had only the current resource is kept",
    per: "type",
    atBound: "the stream ends with SLOW_CONSUMER, and its client comes back with its versions",
    shownBy: [
      "that is further behind than the log ends, so that its client comes back",
      "keeps no version of a resource that is not current, however large assignments are",
    ],
  },
  {
    what: "values that xDS can't serve",
    owners: ["InvalidValues"],
    bound:
      "objects in the cache, 500 characters each; 100 lines of the log at once, then one a second",
    per: "type",
    atBound: "further ones are counted",
    shownBy: [
      "%s is not served, and the last valid one stays",
      "that a writer makes valid and invalid again and again is logged at a bounded rate",
    ],
  },
  {
    what: "refusals (NACK) of clients of xDS",
    owners: ["Refusals"],
    bound: "100, with 1,024 characters each",
    per: "process",
    atBound: "the oldest of the identity that has the most is dropped",
    shownBy: [
      "of more than a hundred kinds are counted, and the last hundred shown",
      "of one identity do not push out those of others",
    ],
  },
];
