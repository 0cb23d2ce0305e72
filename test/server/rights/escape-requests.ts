import type { Access, AccessScope, Verb } from "../../../src/policy/access.ts";
import { encodePageToken } from "../../../src/server/services/page-token.ts";
import { listIdentity } from "../../../src/server/services/parse-requests.ts";
import type { ListRequest__Output } from "../../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import {
  healthService,
  listWatchService,
  reflectionServices,
  writeService,
} from "../../../src/wire/services.ts";
import { encode } from "../../foreign/protobuf.ts";
import fc from "../../property.ts";
import { callers } from "./escape-rights.ts";

/** One request of a limited caller. */
export interface RandomRequest {
  readonly caller: string;
  readonly path: string;
  /** Encodes the message, once the world is known. */
  readonly encode: (world: RequestWorld) => Uint8Array;
  /** What it asks for; undefined: nothing that needs a right. */
  readonly access: Access | undefined;
  /** What it asks for besides. Absent: nothing. */
  readonly also?: Access | undefined;
  /** Whether the encoded message is exactly what `access` says. */
  readonly isExact: boolean;
  /** Of a stream of requests: those behind the first. */
  readonly further?: (world: RequestWorld) => readonly Uint8Array[];
  /** What each watch of a Subscribe stream asks for. Their ids are 1, 2 and so on. */
  readonly watches?: readonly Access[];
}

/** What requests refer to. */
export interface RequestWorld {
  readonly historyId: string;
  /** The store's revision, about. */
  readonly revision: number;
  /** Page tokens that were sent to any caller. */
  readonly tokens: readonly string[];
}

const anyResource = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom("pods", "raw") },
  { weight: 1, arbitrary: fc.constantFrom("hidden", "later", "*", "", "pods ", "PODS", "p") },
);
const anyText = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.constantFrom(
      ...[
        "",
        "a",
        "a0",
        "ab/",
        "ab/1",
        "a/",
        "a/1",
        "a/x",
        "a/x1",
        "a/x2",
        "b",
        "b/",
        "b/1",
        "c/",
        "c/1",
        "c/2",
        "z",
      ],
      ...[
        "d/",
        "d/1",
        "d/2",
        "w/",
        "w/1",
        "a/../b/1",
        "a//",
        "A/",
        "*",
        "a/*",
        "a/\u0000",
        "\u{10ffff}",
      ],
    ),
  },
  { weight: 1, arbitrary: fc.string({ unit: "grapheme", maxLength: 5 }) },
);
/** The caller, and what it asks for. Half of them are close to a right, so that some requests are allowed. */
const target = fc.oneof(
  fc.record({ caller: fc.constantFrom(...callers), resource: anyResource, text: anyText }),
  fc.constantFrom(
    ...[
      near("s/reader", "pods", "a/"),
      near("s/reader", "pods", "a/1"),
      near("s/reader", "raw", "a/"),
    ],
    ...[
      near("s/reader", "pods", "a/x"),
      near("s/watcher", "pods", "b/"),
      near("s/owner", "pods", "a/1"),
    ],
    ...[
      near("s/lister", "pods", "a/x"),
      near("s/lister", "pods", "a/x1"),
      near("s/lister", "raw", "b/"),
    ],
    ...[
      near("s/owner", "pods", "d/"),
      near("s/owner", "pods", "d/1"),
      near("s/owner", "pods", "d/2"),
    ],
    ...[
      near("s/getter", "pods", "c/1"),
      near("s/getter", "later", "a"),
      near("s/writer", "pods", "w/1"),
    ],
  ),
);

function near(caller: string, resource: string, text: string) {
  return { caller, resource, text };
}

const labelSelector = fc.oneof(
  { weight: 4, arbitrary: fc.constant("") },
  {
    weight: 1,
    arbitrary: fc.constantFrom("app", "!app", "app!=x", "tier=front", "tier in (front,back)", "(("),
  },
);
const fieldSelector = fc.oneof(
  { weight: 4, arbitrary: fc.constant("") },
  { weight: 1, arbitrary: fc.constantFrom("phase=on", "phase!=on", "phase=", "data=x", "=,") },
);
/** Relative to the store's revision; undefined: absent. */
const revisionOffset = fc.oneof(
  { weight: 6, arbitrary: fc.constant(undefined) },
  { weight: 4, arbitrary: fc.integer({ min: -20, max: 2 }) },
  { weight: 1, arbitrary: fc.constantFrom(-1e9, 1e9) },
);
const historyId = fc.constantFrom("", "", "", "", "", "own", "own", "other");
const freshMatch = fc.constantFrom(
  ...(["REVISION_MATCH_UNSPECIFIED", "REVISION_MATCH_LINEARIZABLE", "REVISION_MATCH_ANY"] as const),
);
const revisionMatch = fc.constantFrom(
  ...(["REVISION_MATCH_NOT_OLDER_THAN", "REVISION_MATCH_EXACT"] as const),
);
/** Which state is read: mostly with a revision where the match needs one. */
const state = fc.oneof(
  { weight: 6, arbitrary: fc.record({ match: freshMatch, offset: fc.constant(undefined) }) },
  {
    weight: 4,
    arbitrary: fc.record({ match: revisionMatch, offset: fc.integer({ min: -20, max: 1 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ match: fc.oneof(freshMatch, revisionMatch), offset: revisionOffset }),
  },
);
const token = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ kind: "none" as const }) },
  { weight: 2, arbitrary: fc.nat().map((index) => ({ kind: "seen" as const, index })) },
  { weight: 2, arbitrary: anyText.map((after) => ({ kind: "forged" as const, after })) },
  { weight: 1, arbitrary: fc.base64String().map((value) => ({ kind: "junk" as const, value })) },
);

const revisionAt = (world: RequestWorld, offset: number | undefined): number =>
  offset === undefined ? 0 : Math.max(-1, world.revision + offset);
const historyOf = (world: RequestWorld, which: string): string =>
  which === "own" ? world.historyId : which;

function accessTo(verb: Verb, of: string, scope: AccessScope): Access {
  return { verb, resource: of, scope };
}

/** What of each object is asked for. */
const shows: fc.Arbitrary<Pick<ListRequest__Output, "read_mask" | "view">> = fc.record({
  view: fc.constantFrom(
    ...(["VIEW_UNSPECIFIED", "VIEW_UNSPECIFIED", "VIEW_KEYS", "VIEW_ATTRIBUTES"] as const),
  ),
  read_mask: fc.constantFrom(null, null, null, { paths: ["data", "metadata.labels"] }),
});

const get = fc
  .record({ target, state, historyId, shows })
  .map(({ target: { caller, resource, text: key }, state: { match, offset }, ...given }) => ({
    caller,
    path: listWatchService.Get.path,
    encode: (world: RequestWorld) =>
      listWatchService.Get.requestSerialize({
        ...{ resource, key, revision_match: match, revision: revisionAt(world, offset) },
        history_id: historyOf(world, given.historyId),
        ...given.shows,
      }),
    access: accessTo("get", resource, { key }),
    isExact: true,
  }));

const history = fc
  .record({
    ...{ target, offset: revisionOffset, historyId, pageSize: fc.constantFrom(0, 1, -1) },
    junk: fc.constantFrom("", "", "", "", "junk"),
  })
  .map(({ target: { caller, resource, text: key }, offset, pageSize, ...given }) => ({
    caller,
    path: listWatchService.History.path,
    encode: (world: RequestWorld) =>
      listWatchService.History.requestSerialize({
        ...{ resource, key, revision: revisionAt(world, offset), page_size: pageSize },
        history_id: historyOf(world, given.historyId),
        page_token: given.junk,
      }),
    access: accessTo("get", resource, { key }),
    isExact: true,
  }));

const noRange = { weight: 4, arbitrary: fc.constant(["", ""] as const) };
/** The first key of a range, and the one behind its last; empty: none. */
const range = fc.oneof(noRange, { weight: 3, arbitrary: fc.tuple(anyText, anyText) });
const order = fc.constantFrom(
  ...(["ORDER_UNSPECIFIED", "ORDER_KEY_DESCENDING"] as const),
  ...(["ORDER_MOD_REVISION_ASCENDING", "ORDER_CREATE_REVISION_DESCENDING"] as const),
);

/** The longest text that all keys with the prefix and in the range begin with; the prefix if there is no such key. */
function covering(prefix: string, [start, end]: readonly [string, string]): AccessScope {
  const from = Buffer.compare(Buffer.from(start), Buffer.from(prefix)) > 0 ? start : prefix;
  const isBelow = (key: string, other: Buffer) => Buffer.compare(Buffer.from(key), other) < 0;
  const isAbove = (key: string, other: Buffer) => Buffer.compare(Buffer.from(key), other) > 0;
  const isBeyond = from !== prefix && !isBelow(from, endOf(prefix));
  if (isBeyond || (end !== "" && !isBelow(from, Buffer.from(end)))) return { prefix };
  if (end === `${from}\0`) return { key: from };
  const isWithin = (text: string) =>
    prefix.startsWith(text) || (end !== "" && !isAbove(end, endOf(text)));
  for (let length = from.length; length > 0; length--) {
    const text = from.slice(0, length);
    if (text.isWellFormed() && isWithin(text)) return { prefix: text };
  }
  return { prefix: "" };
}

/** The first key that is above all keys that begin with the text. */
function endOf(text: string): Buffer {
  const end = Buffer.from(text);
  const last = end.length - 1;
  if (last >= 0) end[last] = (end[last] ?? 0) + 1;
  return last >= 0 ? end : Buffer.of(0xff);
}

const list = fc
  .record({
    ...{ target, state, historyId, token, range, order, shows },
    ...{ labelSelector, fieldSelector, pageSize: fc.constantFrom(0, 1, 2, 3, 1_000, -1) },
  })
  .map((given) => ({
    caller: given.target.caller,
    path: listWatchService.List.path,
    encode: (world: RequestWorld) => listWatchService.List.requestSerialize(listOf(given, world)),
    access: accessTo("list", given.target.resource, covering(given.target.text, given.range)),
    isExact: true,
  }));

interface GivenList {
  readonly target: { readonly resource: string; readonly text: string };
  readonly state: {
    readonly match: ListRequest__Output["revision_match"];
    readonly offset: number | undefined;
  };
  readonly historyId: string;
  readonly range: readonly [string, string];
  readonly order: ListRequest__Output["order"];
  readonly token: typeof token extends fc.Arbitrary<infer T> ? T : never;
  readonly labelSelector: string;
  readonly fieldSelector: string;
  readonly pageSize: number;
  readonly shows: typeof shows extends fc.Arbitrary<infer T> ? T : never;
}

function listOf(given: GivenList, world: RequestWorld): ListRequest__Output {
  const request: ListRequest__Output = {
    ...{ resource: given.target.resource, prefix: given.target.text },
    revision_match: given.state.match,
    ...{ label_selector: given.labelSelector, field_selector: given.fieldSelector },
    revision: String(revisionAt(world, given.state.offset)),
    page_size: given.pageSize,
    page_token: "",
    ...given.shows,
    shard: null,
    ...{ start_key: given.range[0], end_key: given.range[1], order: given.order },
    history_id: historyOf(world, given.historyId),
  };
  return { ...request, page_token: tokenOf(given, request, world) };
}

/** A client can make any token: its check has no secret. */
function tokenOf({ token: which }: GivenList, request: ListRequest__Output, world: RequestWorld) {
  if (which.kind === "junk") return which.value;
  if (which.kind === "seen") return world.tokens[which.index % world.tokens.length] ?? "";
  if (which.kind === "none") return "";
  const { revision, historyId: history } = world;
  const position = { revision, historyId: history, startAfter: which.after };
  return encodePageToken(position, listIdentity(request));
}

const watch = fc
  .record({
    ...{ target, historyId, labelSelector, fieldSelector, shows },
    scope: fc.constantFrom("key", "prefix", "prefix", "prefix", "neither", "range"),
    end: anyText,
    after: revisionOffset,
    initial: fc.boolean(),
    delivery: fc.constantFrom("DELIVERY_EVERY_EVENT" as const, "DELIVERY_LATEST_STATE" as const),
    previous: fc.boolean(),
    eager: fc.boolean(),
    interval: fc.constantFrom(undefined, undefined, 1, 5, 0),
  })
  .map((given) => {
    const scope: AccessScope =
      given.scope === "key"
        ? { key: given.target.text }
        : { prefix: given.scope === "prefix" ? given.target.text : "" };
    const isRange = given.scope === "range";
    const range = { start_key: given.target.text, end_key: given.end };
    const access = isRange ? covering("", [range.start_key, range.end_key]) : scope;
    const asked = isRange ? { range } : scope;
    return {
      caller: given.target.caller,
      path: listWatchService.Watch.path,
      encode: (world: RequestWorld) =>
        listWatchService.Watch.requestSerialize({
          ...{ resource: given.target.resource, ...(given.scope === "neither" ? {} : asked) },
          ...{ label_selector: given.labelSelector, field_selector: given.fieldSelector },
          ...(given.after === undefined ? {} : { after_revision: revisionAt(world, given.after) }),
          ...{ send_initial_events: given.initial, delivery: given.delivery },
          ...{ include_previous: given.previous, eager_bookmarks: given.eager },
          ...(given.interval === undefined
            ? {}
            : { bookmark_interval: { seconds: given.interval, nanos: 0 } }),
          history_id: historyOf(world, given.historyId),
          ...given.shows,
        }),
      access: accessTo("watch", given.target.resource, access),
      isExact: true,
    };
  });

/** Watches of one caller, requests for their progress, credit, and removals, some of which name none of them. */
const subscribe = fc
  .record({
    watches: fc.array(watch, { minLength: 1, maxLength: 5 }),
    others: fc.array(
      fc.record({ field: fc.constantFrom(2, 3, 4, 4, 4), id: fc.integer({ min: -1, max: 6 }) }),
      { maxLength: 4 },
    ),
  })
  .map(({ watches, others }) => {
    const requestsOf = (world: RequestWorld): Uint8Array[] => [
      ...watches.map((asked, i) => encode({ 1: encode({ 1: i + 1, 2: asked.encode(world) }) })),
      ...others.map(({ field, id }) => encode({ [field]: encode({ 1: id }) })),
    ];
    return {
      caller: watches[0]?.caller ?? "",
      path: listWatchService.Subscribe.path,
      encode: (world: RequestWorld) => requestsOf(world)[0] ?? Buffer.of(),
      further: (world: RequestWorld) => requestsOf(world).slice(1),
      ...{ access: undefined, watches: watches.map(({ access }) => access), isExact: false },
    };
  });

const expected = fc.constantFrom(undefined, 0, 1, 5, -1);

const put = fc
  .record({ target, expected, lease: fc.constantFrom(0, 0, 7), ttl: fc.boolean(), historyId })
  .map(({ target: { caller, resource, text: key }, ...given }) => ({
    caller,
    path: writeService.Put.path,
    encode: (world: RequestWorld) =>
      writeService.Put.requestSerialize({
        ...{ resource, key, value: Buffer.from("mine") },
        ...{ lease: given.lease, history_id: historyOf(world, given.historyId) },
        ...(given.ttl ? { ttl: { seconds: 60, nanos: 0 } } : {}),
        ...(given.expected === undefined ? {} : { expected_mod_revision: given.expected }),
      }),
    access: accessTo("put", resource, { key }),
    also: given.ttl || given.lease > 0 ? accessTo("delete", resource, { key }) : undefined,
    // No object has the lease, so what is allowed by its scope is refused as well, unless it is invalid.
    isExact: given.lease === 0,
  }));

const remove = fc
  .record({ target, expected, historyId })
  .map(({ target: { caller, resource, text: key }, ...given }) => ({
    caller,
    path: writeService.Delete.path,
    encode: (world: RequestWorld) =>
      writeService.Delete.requestSerialize({
        ...{ resource, key },
        history_id: historyOf(world, given.historyId),
        ...(given.expected === undefined ? {} : { expected_mod_revision: given.expected }),
      }),
    access: accessTo("delete", resource, { key }),
    isExact: true,
  }));

const resources = fc
  .record({ caller: fc.constantFrom(...callers), after_name: anyText, check_path: fc.boolean() })
  .map(({ caller, ...request }) => ({
    caller,
    path: listWatchService.Resources.path,
    encode: () => listWatchService.Resources.requestSerialize(request),
    access: undefined,
    // It is never denied, and lists what its caller may read.
    isExact: false,
  }));

const healthName = fc.oneof(
  fc.constantFrom(
    "",
    "resource/",
    "resource/pods",
    "resource/raw",
    "resource/hidden",
    "resource/*",
  ),
  anyText,
);
const health = fc
  .record({
    caller: fc.constantFrom(...callers),
    service: healthName,
    method: fc.constantFrom("Check", "Watch", "List"),
  })
  .map(({ caller, service, method }) => ({
    caller,
    path: `/grpc.health.v1.Health/${method}`,
    encode: () =>
      method === "List"
        ? healthService.List.requestSerialize({})
        : healthService.Check.requestSerialize({ service }),
    access: undefined,
    isExact: true,
  }));

const [reflectionV1] = reflectionServices;
const reflectionQuestion = fc.oneof(
  fc.constant({ list_services: "" }),
  anyText.map((name) => ({ file_containing_symbol: name })),
  fc.constantFrom(
    { file_containing_symbol: "watchfanout.v1.ListWatchService" },
    { file_by_filename: "watchfanout/v1/list_watch_service.proto" },
    { all_extension_numbers_of_type: "watchfanout.v1.ListRequest" },
  ),
);
const reflection = fc
  .record({ caller: fc.constantFrom(...callers), question: reflectionQuestion })
  .map((given) => ({
    caller: given.caller,
    path: reflectionV1?.ServerReflectionInfo.path ?? "",
    encode: () =>
      reflectionV1?.ServerReflectionInfo.requestSerialize(given.question) ?? Buffer.alloc(0),
    access: undefined,
    isExact: true,
  }));

const methodPaths = [listWatchService, writeService].flatMap((service) =>
  Object.values(service).map(({ path }) => path),
);
/** Bytes that may be no message at all, of a caller without rights. */
const junk = fc
  .record({ path: fc.constantFrom(...methodPaths), bytes: fc.uint8Array({ maxLength: 40 }) })
  .map(({ path, bytes }) => ({
    caller: "s/stranger",
    path,
    encode: () => bytes,
    access: undefined,
    isExact: false,
  }));

/** A request with any fields, of any limited caller. */
export const randomRequest: fc.Arbitrary<RandomRequest> = fc.oneof(
  { weight: 2, arbitrary: get },
  { weight: 2, arbitrary: history },
  { weight: 5, arbitrary: list },
  { weight: 5, arbitrary: watch },
  { weight: 4, arbitrary: subscribe },
  { weight: 2, arbitrary: put },
  { weight: 2, arbitrary: remove },
  { weight: 1, arbitrary: resources },
  { weight: 1, arbitrary: health },
  { weight: 1, arbitrary: reflection },
  { weight: 1, arbitrary: junk },
);
