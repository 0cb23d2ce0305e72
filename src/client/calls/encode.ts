import type { GetRequest } from "../../wire/generated/watchfanout/v1/GetRequest.ts";
import type {
  CountOptions,
  HashRange,
  KeyRange,
  ReadOptions,
  SelectorOptions,
  ViewOptions,
} from "./options.ts";

/*
 * Options as fields of requests.
 */

/** What of each object is sent, as fields of a request. */
export function wireView({
  view,
  readMask,
}: ViewOptions): Required<Pick<GetRequest, "read_mask" | "view">> {
  return {
    view: `VIEW_${view ?? "UNSPECIFIED"}`,
    read_mask: readMask === undefined ? null : { paths: [...readMask] },
  };
}

/** Which objects a list or a watch has, besides their keys. */
export function wireSelection({
  labelSelector = "",
  fieldSelector = "",
  shard,
}: SelectorOptions & Pick<CountOptions, "shard">) {
  const ranges = shard?.map(({ first, last }) => ({ first: `${first}`, last: `${last}` }));
  return {
    label_selector: labelSelector,
    field_selector: fieldSelector,
    shard: ranges === undefined ? null : { ranges },
  };
}

/** The revision requirement of a read. */
export function wirePosition(options: ReadOptions) {
  const at = options.at ?? { match: "LINEARIZABLE" };
  return {
    revision_match: `REVISION_MATCH_${at.match}` as const,
    revision: "revision" in at ? at.revision : 0,
    history_id: options.historyId ?? "",
  };
}

/** A range of keys. */
export function wireRange({ startKey = "", endKey = "" }: KeyRange): {
  start_key: string;
  end_key: string;
} {
  return { start_key: startKey, end_key: endKey };
}

/** Converts milliseconds to a google.protobuf.Duration; null if undefined. */
export function wireDuration(ms: number | undefined): { seconds: number; nanos: number } | null {
  if (ms === undefined) return null;
  return { seconds: Math.trunc(ms / 1_000), nanos: Math.trunc((ms % 1_000) * 1e6) };
}

/** The mod revision that a write expects. */
export function wireExpectation(revision: number | undefined): { expected_mod_revision?: number } {
  return revision === undefined ? {} : { expected_mod_revision: revision };
}

/** The hashes of part `index`, counted from 0, of `count` parts of about the same size. */
export function shardOf(index: number, count: number): readonly HashRange[] {
  if (!(Number.isInteger(count) && Number.isInteger(index) && index >= 0 && index < count)) {
    throw new RangeError(`There is no part ${index} of ${count}: parts are counted from 0.`);
  }
  const begin = (part: number): bigint => (BigInt(part) * 2n ** 64n) / BigInt(count);
  return [{ first: begin(index), last: begin(index + 1) - 1n }];
}
