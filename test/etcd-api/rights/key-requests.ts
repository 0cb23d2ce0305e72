import { encode, type Fields } from "../../foreign/protobuf.ts";
import fc from "../../property.ts";
import { callers, mayKey, mayRange, type Verb } from "./limited-callers.ts";

/** One request of a limited caller. */
export interface KeyRequest {
  readonly caller: string;
  readonly method: "Range" | "Put" | "DeleteRange" | "Txn" | "Watch";
  readonly message: Buffer;
  /** Whether the caller may do all of it; undefined: it may be refused for its form. */
  readonly isAllowed: boolean | undefined;
  /** By which verbs it could show a value. */
  readonly shows: readonly Verb[];
}

const paths = ["", "a", "a/", "a/1", "a/x1", "a/x", "b", "b/1", "bc/1", "c/1", "c/", "d"];
const more = ["d/", "d/1", "d/2", "d0", "e/", "e/1", "e/2", "w/", "w/1", "w/2", "z", "\u00e9/1"];
const owned = ["o/1", "o/2", "o/x"];
const texts: readonly string[] = [...paths, ...more, ...owned].flatMap((path) => [
  `/r/pods/${path}`,
  `/r/raw/${path}`,
]);
const odd = ["\0", "/", "/r", "/r/", "/r/pods", "/r/pods0", "/r/other/1", "/s", "~watchfanout"];

/** A lease, the key that is attached to it, which no limited caller may write, and a lease that does not exist. */
export const foreignLease = 8;
export const foreignKey: Buffer = Buffer.from("/s");
const missingLease = 7;

/** The keys that the store has. */
export const storedKeys: readonly Buffer[] = [
  ...texts.filter((text) => /\d$|s\/$/.test(text)).map((text) => Buffer.from(text)),
  Buffer.from("/r/other/1"),
  Buffer.from("/s"),
  Buffer.concat([Buffer.from("/r/pods/a/"), Buffer.of(0xff, 0xc3)]),
  Buffer.concat([Buffer.from("/r/pods/"), Buffer.of(0xc3)]),
];

const anyKey = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...texts).map((text) => Buffer.from(text)) },
  { weight: 2, arbitrary: fc.constantFrom(...storedKeys) },
  { weight: 1, arbitrary: fc.constantFrom(...odd).map((text) => Buffer.from(text)) },
);

const next = (key: Buffer): Buffer => {
  const end = Buffer.from(key);
  end.writeUInt8(Math.min(255, end.readUInt8(end.length - 1) + 1), end.length - 1);
  return end;
};

/** A key and an end; undefined: one key. */
interface Target {
  readonly key: Buffer;
  readonly end: Buffer | undefined;
}

const isOne = ({ key, end }: Target): boolean =>
  end === undefined || end.equals(Buffer.concat([key, Buffer.of(0)]));

function may(caller: string, verb: Verb, { key, end }: Target): boolean {
  if (end === undefined || isOne({ key, end })) return mayKey(caller, verb, key);
  // An empty range is refused.
  if (!end.equals(Buffer.of(0)) && Buffer.compare(end, key) <= 0) return false;
  return mayRange(caller, verb, key, end);
}

/** A part of a request, with a model of the right to it. */
interface Part {
  readonly fields: Fields;
  readonly may: (caller: string) => boolean;
  /** Number of accesses. Default: 1. */
  readonly size?: number;
}

/** What makes a message one that decoders could understand differently. */
const distortions: readonly ((message: Buffer, other: Buffer) => Buffer)[] = [
  (message, other) => Buffer.concat([message, other]),
  (message, other) => Buffer.concat([other, message]),
  (message) => Buffer.concat([message, encode({ 2: "" })]),
  (message) => Buffer.concat([message, encode({ 15: 1 })]),
  (message) => Buffer.concat([message, encode({ 100: "unknown" })]),
  (message) => message.subarray(0, message.length - 1),
  // A field 1 for decoders that cut its number to 32 bits.
  (message) => Buffer.concat([message, Buffer.from("8a8080808001", "hex"), Buffer.from("\u0001/")]),
  // A number of the wrong type.
  (message) => Buffer.concat([message, encode({ 1: 7 })]),
];

const partsOf = (anyKey: fc.Arbitrary<Buffer>) => {
  const target: fc.Arbitrary<Target> = fc.oneof(
    { weight: 4, arbitrary: anyKey.map((key) => ({ key, end: undefined })) },
    { weight: 4, arbitrary: anyKey.map((key) => ({ key, end: next(key) })) },
    {
      weight: 1,
      arbitrary: anyKey.map((key) => ({ key, end: Buffer.concat([key, Buffer.of(0)]) })),
    },
    { weight: 1, arbitrary: anyKey.map((key) => ({ key, end: Buffer.of(0) })) },
    { weight: 2, arbitrary: fc.record({ key: anyKey, end: anyKey }) },
    { weight: 1, arbitrary: fc.record({ key: anyKey, end: anyKey.map(next) }) },
  );

  const rangePart: fc.Arbitrary<Part> = fc
    .record({
      target,
      serializable: fc.boolean(),
      keysOnly: fc.boolean(),
      countOnly: fc.boolean(),
      limit: fc.constantFrom(0, 0, 1),
      order: fc.constantFrom(0, 2),
    })
    .map((given) => ({
      fields: {
        ...{ 1: given.target.key, 2: given.target.end, 3: given.limit, 5: given.order },
        ...{ 7: given.serializable, 8: given.keysOnly, 9: given.countOnly },
      },
      may: (caller) => may(caller, isOne(given.target) ? "get" : "list", given.target),
    }));

  const putPart: fc.Arbitrary<Part> = fc
    .record({
      key: anyKey,
      previous: fc.boolean(),
      lease: fc.constantFrom(0, 0, 0, 0, missingLease, foreignLease),
    })
    .map(({ key, previous, lease }) => ({
      fields: { 1: key, 2: "mine", 3: lease === 0 ? undefined : lease, 4: previous },
      may: (caller) =>
        lease !== foreignLease &&
        mayKey(caller, "put", key) &&
        (lease === 0 || mayKey(caller, "delete", key)) &&
        (!previous || mayKey(caller, "get", key)),
    }));

  const deletePart: fc.Arbitrary<Part> = fc
    .record({ target, previous: fc.boolean() })
    .map(({ target: asked, previous }) => ({
      fields: { 1: asked.key, 2: asked.end, 3: previous },
      may: (caller) => may(caller, "delete", asked),
    }));

  const comparePart: fc.Arbitrary<Part> = fc
    .record({ target, by: fc.constantFrom(4, 5, 6, 7) })
    .map(({ target: asked, by }) => ({
      fields: {
        1: by % 3,
        ...{ 2: by === 7 ? 3 : by - 4, 3: asked.key, 64: asked.end },
        [by]: by === 7 ? "secret" : 0,
      },
      may: (caller) => may(caller, isOne(asked) ? "get" : "list", asked),
    }));

  const operation = (txn: fc.Arbitrary<Part> | undefined): fc.Arbitrary<Part> => {
    const wrap = (part: fc.Arbitrary<Part>, field: number) =>
      part.map(({ fields, ...rest }) => ({ ...rest, fields: { [field]: encode(fields) } }));
    const simple = [wrap(rangePart, 1), wrap(putPart, 2), wrap(deletePart, 3)];
    return fc.oneof(...simple, ...(txn === undefined ? [] : [wrap(txn, 4)]));
  };

  const txnPart = (depth: number): fc.Arbitrary<Part> => {
    const nested = operation(depth > 0 ? txnPart(depth - 1) : undefined);
    const some = fc.array(nested, { maxLength: 2 });
    return fc
      .record({ compare: fc.array(comparePart, { maxLength: 2 }), success: some, failure: some })
      .map(({ compare, success, failure }) => ({
        size: [...compare, ...success, ...failure].reduce((sum, { size = 1 }) => sum + size, 0),
        fields: {
          1: compare.map(({ fields }) => encode(fields)),
          2: success.map(({ fields }) => encode(fields)),
          3: failure.map(({ fields }) => encode(fields)),
        },
        may: (caller) => [...compare, ...success, ...failure].every((part) => part.may(caller)),
      }));
  };

  const watchPart: fc.Arbitrary<Part> = fc
    .record({ target, previous: fc.boolean(), start: fc.constantFrom(undefined, 1, 2) })
    .map(({ target: asked, previous, start }) => ({
      fields: { 1: asked.key, 2: asked.end, 3: start, 6: previous },
      may: (caller) => may(caller, "watch", asked),
    }));

  return {
    Range: { part: rangePart, shows: ["get", "list"] },
    Put: { part: putPart, shows: ["get"] },
    DeleteRange: { part: deletePart, shows: ["delete"] },
    Txn: { part: txnPart(2), shows: ["get", "list", "delete"] },
    Watch: { part: watchPart, shows: ["watch"] },
  } as const;
};

/** What a caller may do something with, and the prefixes of that. */
export const nearKeys = (caller: string): Buffer[] => {
  const verbs = ["get", "list", "watch", "put", "delete"] as const;
  const known = texts.map((text) => Buffer.from(text));
  return known.filter((key) => verbs.some((verb) => mayKey(caller, verb, key)));
};

const requestOf = (
  method: KeyRequest["method"],
  caller: string,
  anyKeyOf: fc.Arbitrary<Buffer>,
): fc.Arbitrary<KeyRequest> => {
  const { part, shows } = partsOf(anyKeyOf)[method];
  return fc
    .record({
      ...{ part, other: part },
      distortion: fc.oneof(
        { weight: 4, arbitrary: fc.constant(-1) },
        { weight: 1, arbitrary: fc.nat(distortions.length - 1) },
      ),
    })
    .map(({ part: given, other, distortion }) => {
      const encoded = encode(given.fields);
      const distort = distortions[distortion];
      const message = distort?.(encoded, encode(other.fields)) ?? encoded;
      return {
        ...{ caller, method, shows },
        message: method === "Watch" ? encode({ 1: message }) : message,
        // What asks for nothing is refused.
        isAllowed: distort === undefined ? given.may(caller) && given.size !== 0 : undefined,
      };
    });
};

const methods = ["Range", "Put", "DeleteRange", "Txn", "Watch"] as const;

/** A request with any fields, of any limited caller. Half of them are close to a right, so that some are allowed. */
export const keyRequest: fc.Arbitrary<KeyRequest> = fc.oneof(
  ...callers.flatMap((caller) => {
    const near = nearKeys(caller);
    const pools = near.length === 0 ? [anyKey] : [anyKey, fc.constantFrom(...near)];
    return pools.flatMap((pool) => methods.map((method) => requestOf(method, caller, pool)));
  }),
);
