import type { Bound } from "./bound.ts";

export const etcdApiBounds: readonly Bound[] = [
  {
    what: "relayed calls",
    owners: ["Rounds", "ForwardedCall"],
    bound: "`--max-streams`, with all other streams; checked once a second",
    per: "process",
    atBound:
      "the oldest of the connection that has most ends with UNAVAILABLE; the call is refused with it if that is its own",
    shownBy: ["beyond the open streams is refused as UNAVAILABLE"],
  },
  {
    what: "the request of a unary call",
    owners: ["ForwardedCall"],
    bound: "60 s to arrive",
    per: "call",
    atBound: "DEADLINE_EXCEEDED",
    shownBy: ["whose request does not arrive ends after a minute"],
  },
  {
    what: "bytes of requests that etcd has not accepted",
    owners: ["ForwardedRequest"],
    bound:
      "64 KiB and a chunk, then the client's stream is not read; counted with incomplete requests, at 64 KiB more while it is not read",
    per: "call, connection, process",
    atBound: "the largest is refused: RESOURCE_EXHAUSTED",
    shownBy: ["are held up to the bound of their connection, then the largest are refused"],
  },
  {
    what: "bytes of responses that the client has not accepted",
    owners: ["ForwardedCall", "UpstreamConnection"],
    bound:
      "a window of 128 KiB and what has been read at once; after a second counted with responses that are not accepted",
    per: "call, connection, process",
    atBound: "etcd waits for this call alone; the largest is reset",
    shownBy: ["slows only its own call, and holds little memory"],
  },
  {
    what: "responses of a caller above its rate",
    owners: ["ForwardedCall"],
    bound:
      "`--max-send-rate-per-identity`, `--max-send-rate`; what is held counts with responses that are not accepted",
    per: "caller, process",
    atBound: "the next bytes are not read; etcd waits for these calls",
    shownBy: ["waits while its caller has got more than it may per second"],
  },
  {
    what: "a response that is not accepted",
    owners: ["ForwardedCall"],
    bound: "`--stall-timeout`",
    per: "call",
    atBound:
      "reset with REFUSED_STREAM, which clients see as UNAVAILABLE; a call that may write, other than `LeaseKeepAlive`, with ENHANCE_YOUR_CALM, since clients repeat what was refused",
    shownBy: [
      "whose client accepts nothing for the stall timeout is reset, so that a watch resumes",
    ],
  },
  {
    what: "a message that is changed (`MemberList`, and with a namespace those that have keys)",
    owners: ["ForwardedCall", "MessageTranslator"],
    bound:
      "requests 16 MiB, counted with incomplete requests; responses 1 GiB, counted in the send budget",
    per: "call",
    atBound: "a request is refused; a response is reset with INTERNAL_ERROR",
    shownBy: ["that is %s can't be changed"],
  },
  {
    what: "the body of a request of the JSON gateway",
    owners: ["JsonRequest", "JsonValues"],
    bound: "3 MiB, of a stream for each value; counted twice with incomplete requests",
    per: "call, connection, process",
    atBound: "RESOURCE_EXHAUSTED",
    shownBy: ["counts what it holds of a body, and refuses one beyond 3 MiB"],
  },
  {
    what: "values in the JSON of a request of the gateway",
    owners: ["JsonValues"],
    bound: "100,000",
    per: "request",
    atBound: "INVALID_ARGUMENT",
    shownBy: ["refuses JSON of very many values before it is parsed"],
  },
  {
    what: "a part of a response of the JSON gateway: an object, the result of an operation, a message of a stream",
    owners: ["JsonCall", "JsonStream"],
    bound: "2 MiB; 64 MiB of a message; above 64 KiB counted with unsent responses",
    per: "call, connection, process",
    atBound: "RESOURCE_EXHAUSTED",
    shownBy: [
      "gets results of operations up to 2 MiB each, which count as unsent while they are held",
    ],
  },
  {
    what: "the JSON of a response of the gateway",
    owners: ["JsonCall"],
    bound: "64 KiB of text and one part; of a stream one message",
    per: "call",
    atBound: "sent, and not read on until the client has accepted it",
    shownBy: ["whose client reads nothing of a large response is closed, too"],
  },
  {
    what: "the JSON of shared messages",
    owners: ["jsonOfFrames"],
    bound: "a text for each message (weak)",
    per: "process",
    atBound: "goes with it",
    shownBy: ["of %s has the events in the form of etcd's"],
  },
  {
    what: "connections to etcd",
    owners: ["UpstreamMember"],
    bound: "1,000 calls each, or etcd's own bound; 2^29 calls ever; 256",
    per: "member",
    atBound: "another connection; UNAVAILABLE",
    shownBy: [
      "gets no further calls before HTTP/2 has no ids left for them, and ends those that it has",
      "is one of many on few connections to etcd",
      "are as many as etcd's own bound of calls per connection needs, up to 256",
    ],
  },
  {
    what: "the revision that each connection to etcd has shown",
    owners: ["NewestHeader"],
    bound: "a number for each connection (weak)",
    per: "connection",
    atBound: "goes with it",
    shownBy: ["show of each connection alone that its member is not behind what clients know of"],
  },
  {
    what: "an attempt to connect",
    owners: ["UpstreamConnection", "UpstreamMember"],
    bound: "1 for all that wait; 3 s; for 100 ms after a failure calls fail at once",
    per: "member",
    atBound: "the next member; UNAVAILABLE",
    shownBy: ["calls fail at once, with the text after which clientv3 repeats even a write"],
  },
  {
    what: "a connection without a sign of life",
    owners: ["UpstreamConnection"],
    bound: "7 s until it is pinged, 3 s to answer",
    per: "connection",
    atBound: "closed; its calls end with UNAVAILABLE; the next member",
    shownBy: ["ends when etcd does not answer pings (etcd issue 17366)"],
  },
  {
    what: "a page of etcd, `/health` or `/version`",
    owners: ["EtcdPages"],
    bound: "1 request for all that ask; 3 s; 64 KiB",
    per: "page",
    atBound: "503",
    shownBy: ["etcd-proxy runs with the flags that etcd's own tests give to grpc-proxy"],
  },
  {
    what: "the request of a Range that a cache may serve",
    owners: ["RangeCall"],
    bound: "64 KiB, counted with incomplete requests; 60 s to arrive",
    per: "call, connection, process",
    atBound: "a larger one is relayed; the largest is refused as UNAVAILABLE; DEADLINE_EXCEEDED",
    shownBy: [
      "in two parts, or of a size that no key has",
      "since its request does not arrive, and others need the room",
      "and whose request does not arrive ends after a minute",
    ],
  },
  {
    what: "Ranges that caches serve",
    owners: ["RangeCall"],
    bound: "`--max-streams`; `--max-reads-in-flight`, and room for their response",
    per: "process",
    atBound:
      "as relayed calls; they wait, and are refused as UNAVAILABLE after `--max-queue-time`, or `--stall-timeout` behind responses that are not accepted",
    shownBy: [
      "beyond the open streams is refused as UNAVAILABLE",
      "since it has waited for a minute behind responses that are not accepted",
    ],
  },
  {
    what: "keys that are sorted for one Range, or within its bounds of revisions",
    owners: ["selectRange"],
    bound: "100,000; until they are sent, 8 bytes each count with incomplete requests",
    per: "call, connection, process",
    atBound: "etcd answers; refused as UNAVAILABLE",
    shownBy: [
      "since the list of what it sorts takes too much",
      "A Range of more than 100,000 objects is not sorted here",
      "counts the list of what it sorts until it is sent, and lists nothing else",
    ],
  },
  {
    what: "a response of a Range or RangeStream that is not accepted",
    owners: ["RangeCall"],
    bound:
      "up to 256 KiB and 512 objects whole; of a larger one 256 KiB, 2,048 objects or one value; its state counts with the states that slow readers retain; counted with responses that are not accepted; `--stall-timeout`",
    per: "call, connection, process",
    atBound: "the next piece is not encoded; reset with REFUSED_STREAM",
    shownBy: [
      "that is small, and is not accepted, is reset as a large one, so that clients try again",
      "and whose client stops reading holds one piece, and is reset after the stall timeout",
    ],
  },
  {
    what: "pieces of these responses that wait to be encoded",
    owners: ["RangeCall", "Turns"],
    bound:
      "one for each call; together they share the 2 ms a turn as one queue; room for a piece is counted from its grant on",
    per: "process",
    atBound: "the next turn; callers in rotation, and the connections of each",
    shownBy: [
      "delay other time-sliced work as one of them does, however many a connection asks for",
      "get it one after another, before the first of them is encoded",
    ],
  },
  {
    what: "what etcd permits clients with a token to read",
    owners: ["ReadPermissions"],
    bound: "10,000; a second; one question of each, for 3 s, with an answer of at most 4 MiB",
    per: "process",
    atBound: "the oldest makes room: etcd is asked again; without an answer etcd gets the Range",
    shownBy: ["Permissions to read are remembered for a second, and are few"],
  },
  {
    what: "Ranges at etcd that caches did not serve in time",
    owners: ["RangeService"],
    bound: "32",
    per: "process",
    atBound: "UNAVAILABLE, `etcdserver: request timed out`",
    shownBy: ["Calls that a cache was too late for are few at etcd at once"],
  },
  {
    what: "a request whose keys are checked against the policy",
    owners: ["CheckedCall", "AccessReader", "SingleFields"],
    bound:
      "2 MiB, counted with incomplete requests; 60 s to arrive; 1,024 keys; 16 leases; 8 transactions within another",
    per: "call, connection, process",
    atBound: "PERMISSION_DENIED; the largest is refused: RESOURCE_EXHAUSTED; DEADLINE_EXCEEDED",
    shownBy: [
      "A request that is compressed, of two messages, cut, or too large is refused",
      "are not read of what has %s",
    ],
  },
  {
    what: "requests that are answered by a question to etcd each: for a lease's time to live, and to keep it alive",
    owners: ["AnsweredCall"],
    bound:
      "4 KiB, counted with incomplete requests; one, of a stream 8, and none is read until the response of the first is accepted; 60 s to arrive",
    per: "call, connection, process",
    atBound: "INTERNAL; the client waits; DEADLINE_EXCEEDED",
    shownBy: [
      "A request that does not arrive, or is cut, is not answered",
      "Keepalives of a stream are several at etcd at once, and answered in their order",
      "What ends a stream of keepalives comes behind the responses to those before it, here %s",
      "Few passwords are checked by etcd at once, fewer of one caller, and a request is small",
    ],
  },
  {
    what: "which leases limited callers may use",
    owners: ["LeaseRights"],
    bound: "10,000; 10 s to keep a lease alive, 1 s to attach a key or if it is refused",
    per: "process",
    atBound: "the oldest makes room: etcd is asked again",
    shownBy: [
      "Few verdicts are remembered",
      "Whether a caller may use a lease is remembered for as long as the use allows it",
    ],
  },
  {
    what: "leases whose refusal is in the audit",
    owners: ["KeyRights"],
    bound: "256",
    per: "call",
    atBound: "the first makes room, and its next refusal has a line again",
    shownBy: [
      "A stream that asks again and again for leases it may not use has a line of each in the audit, and is counted",
    ],
  },
  {
    what: "questions for the keys of a lease",
    owners: ["Questions"],
    bound: "16, of a caller 4; 3 s to wait, 3 s for an answer of at most 256 KiB",
    per: "process, caller",
    atBound: "they wait, callers in rotation; UNAVAILABLE; PERMISSION_DENIED for a larger answer",
    shownBy: [
      "Few questions are at etcd at once, fewer of one caller, and they wait for a while",
      "A lease of more keys than are checked is refused, and a caller can't make one",
    ],
  },
  {
    what: "passwords of limited callers that etcd checks",
    owners: ["Questions"],
    bound: "4, of a caller 2; 30 s to wait, 3 s for an answer",
    per: "process, caller",
    atBound: "they wait, callers in rotation; UNAVAILABLE",
    shownBy: [
      "Few passwords are checked by etcd at once, fewer of one caller, and a request is small",
    ],
  },
  {
    what: "watches of streams that are read here",
    owners: ["WatchCall", "WatchService"],
    bound:
      "20,000 on a stream, 500,000 in all; the stream counts in `--max-streams`; 512 bytes and the request of each, counted with what streams retain of requests",
    per: "stream, process",
    atBound: "refused with `etcdserver: too many requests`; the stream ends with UNAVAILABLE",
    shownBy: ["are at most 20,000 on a stream, and 500,000 in all, 20,000 of them served by etcd"],
  },
  {
    what: "watches of these streams that etcd serves",
    owners: ["UpstreamWatches", "WatchService"],
    bound:
      "20,000, on one stream to etcd for each client's stream; 1 MiB of responses and one response, then etcd's stream is not read; create requests that etcd has not answered by the 256 answers that wait, and counted as watches, with their requests; 3 s for an answer to a progress request, of which one waits to be sent, and one more follows an answer that is not progress of all, 100 ms later if it is of an older revision than clients know of; requests of the client that come before its answer are one together",
    per: "process, stream",
    atBound:
      "the largest stream of the caller that has most ends with UNAVAILABLE; if that is its own, the watch is refused with `etcdserver: too many requests`, and a stream that a cache can't continue ends with UNAVAILABLE; no progress is sent",
    shownBy: [
      "that etcd serves make room for those of callers that have fewer",
      "are at most 20,000 on a stream, and 500,000 in all, 20,000 of them served by etcd",
      "comes from etcd, and later events from the cache again",
      "however many answers are requested at once, one request waits to be sent",
      "a member whose answer is older than what clients know of is asked again, after a while",
      "served by %s leave nothing behind if the last one ends their stream, as too much is retained",
    ],
  },
  {
    what: "answers to a progress request of a watch stream",
    owners: ["WatchResponses"],
    bound:
      "one, or one for each watch of the stream; no other request is answered before they are made, in time slices",
    per: "stream",
    atBound: "",
    shownBy: [
      "are never below what the watch was sent, under a load of writes, and come to all of its watches",
    ],
  },
  {
    what: "requests of a watch stream",
    owners: ["MessageReader", "WatchCall"],
    bound: "2 MiB each, counted with incomplete requests; none is read while 256 answers wait",
    per: "stream, connection, process",
    atBound: "INTERNAL; the largest is refused: RESOURCE_EXHAUSTED; the client waits",
    shownBy: [
      "counts with incomplete requests until the rest of it arrives",
      "that is larger than allowed, or compressed, is not read",
      "are created no faster than the client accepts the answers",
    ],
  },
  {
    what: "a response of etcd to a watch",
    owners: ["MessageReader", "UpstreamWatchCall"],
    bound:
      "a fragment of about 2 MiB, 1 GiB at most; counted with responses that are not accepted, with those that wait, while the client accepts nothing",
    per: "stream, connection, process",
    atBound: "the stream ends with UNAVAILABLE; the largest is reset",
    shownBy: ["that is larger than allowed, or compressed, is not read"],
  },
  {
    what: "one revision of etcd in fragments, for a client that does not ask for fragments",
    owners: ["RevisionJoiner"],
    bound: "1 GiB; etcd itself has no bound",
    per: "watch",
    atBound: "the stream ends with UNAVAILABLE",
    shownBy: ["One revision of etcd in fragments is put together up to a bound"],
  },
  {
    what: "responses of a watch stream that are not accepted",
    owners: ["WatchResponses"],
    bound:
      "one message and one batch, counted with responses that are not accepted; the rest waits in the buffers of the watches; `--stall-timeout`",
    per: "stream, connection, process",
    atBound: "watches catch up from the event window, then from etcd; reset with REFUSED_STREAM",
    shownBy: ["comes to a client that was slow, while others are not delayed (etcd issue 10785)"],
  },
  {
    what: "encoded responses of a batch",
    owners: ["EventEncoder"],
    bound: "one for each set of options, 16 at most; go with the batch",
    per: "batch",
    atBound: "",
    shownBy: ["is fragmented as etcd does it, where the client asks for that"],
  },
  {
    what: "streams that are notified of progress",
    owners: ["Rounds", "WatchService"],
    bound: "by open streams; one timer",
    per: "process",
    atBound: "",
    shownBy: [
      "is sent at intervals to watches that asked for it, also to those that filter all events",
    ],
  },
  {
    what: "the monitor of the member in use",
    owners: ["MemberMonitor"],
    bound:
      "one idle stream; those that wait for it are open streams; 3 s without it end streams with `hasleader`",
    per: "process",
    atBound: "UNAVAILABLE, `etcdserver: no leader`",
    shownBy: [
      "cached watches continue, others end with UNAVAILABLE, and hasleader ends after a while",
    ],
  },
  {
    what: "methods of etcd; headers that are not passed on",
    owners: ["etcdMethodAt", "EtcdApi", "requestHeaders"],
    bound: "fixed; methods that are not known count as one in metrics",
    per: "process",
    atBound: "",
    shownBy: ["etcd's refusal of %s, byte by byte"],
  },
];
