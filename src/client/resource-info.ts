import type { Resource__Output } from "../wire/generated/watchfanout/v1/Resource.ts";
import type { View__Output } from "../wire/generated/watchfanout/v1/View.ts";
import { decodeDuration, decodeRevision } from "./calls/decode.ts";
import type { View } from "./calls/options.ts";

/** A resource, as a server serves it. */
export interface ResourceInfo {
  readonly name: string;
  /** How labels and fields are read. Undefined: in a way that this client does not know. */
  readonly codec: "opaque" | "json" | "protobuf" | undefined;
  /** Whether the server has a cache of it. Without one it can't be watched. */
  readonly isCached: boolean;
  /** The revision of the cache; 0: there is no cache, or it has not synced yet. */
  readonly revision: number;
  /** The history that the revision belongs to; empty if the server does not know it. */
  readonly historyId: string;
  /** Whether the caller may get, list and watch all of it. */
  readonly isReadableInFull: boolean;
  /** How old the cache may be, in milliseconds, while the server can't reach its own source; otherwise undefined. */
  readonly staleForMs: number | undefined;
  /** The fields that field selectors may name, in the order of their names. */
  readonly fields: readonly string[];
  /** Those of them for which a selector that requires one value is fast. */
  readonly indexedFields: readonly string[];
  /** A watch may resume after this revision or a later one; 0: there is no cache, or it has not synced yet. */
  readonly oldestRevision: number;
  /**
   * The views that lists may ask for. Empty: the server is of a version that ignores views, shards and types of events, and
   * sends everything. With ATTRIBUTES it has `readMask`, too.
   */
  readonly views: readonly (View | "COUNT")[];
  /**
   * Its keys in etcd. Absent: the server does not serve them by etcd's own API.
   *
   * @internal
   */
  readonly etcdKeys?: { readonly prefix: string; readonly historyKey: string } | undefined;
}

const codecs: Readonly<Record<string, ResourceInfo["codec"]>> = {
  CODEC_OPAQUE: "opaque",
  CODEC_JSON: "json",
  CODEC_PROTOBUF: "protobuf",
};

/** Decodes a resource of a response. Throws INTERNAL if the server violates the contract. */
export function decodeResourceInfo(wire: Resource__Output): ResourceInfo {
  return {
    name: wire.name,
    codec: codecs[wire.codec],
    isCached: wire.cached,
    revision: decodeRevision(wire.revision),
    historyId: wire.history_id,
    isReadableInFull: wire.readable_in_full,
    staleForMs: decodeDuration(wire.stale_for),
    fields: wire.fields,
    indexedFields: wire.indexed_fields,
    oldestRevision: decodeRevision(wire.oldest_revision),
    views: wire.views.flatMap((view) => views[view] ?? []),
    ...(wire.etcd_keys && {
      etcdKeys: { prefix: wire.etcd_keys.prefix, historyKey: wire.etcd_keys.history_key },
    }),
  };
}

/** The views that this client knows. A later server may have others. */
const views: Readonly<Partial<Record<View__Output, View | "COUNT">>> = {
  VIEW_FULL: "FULL",
  VIEW_KEYS: "KEYS",
  VIEW_COUNT: "COUNT",
  VIEW_ATTRIBUTES: "ATTRIBUTES",
};
