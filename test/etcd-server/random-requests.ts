import { encode } from "../foreign/protobuf.ts";
import fc from "../property.ts";

/*
 * Random requests of etcd's KV and Lease services. Fields that are undefined are absent. The keys are so few that Go's sort,
 * which etcd uses, keeps the order of equal ones: above eleven it does not.
 */

const keys: readonly Buffer[] = [
  ...["a", "a/", "a/b", "ab", "b", "é", "z"].map((text) => Buffer.from(text)),
  Buffer.of(0),
  Buffer.of(0x61, 0x80),
  Buffer.of(0xff),
];

/** The leases that requests name. */
export const leases: readonly bigint[] = [11n, 12n, 13n, 2n ** 62n];

const key = fc.constantFrom(...keys);
const maybeKey = fc.oneof(
  { weight: 30, arbitrary: key },
  { weight: 1, arbitrary: fc.constant(Buffer.of()) },
);
const end = fc.oneof(
  key,
  fc.constant(Buffer.of(0)),
  fc.constant(undefined),
  fc.constant(undefined),
);
const flag = fc.constantFrom(undefined, undefined, true);
const value = fc.constantFrom(Buffer.of(), Buffer.from("1"), Buffer.from("2"), Buffer.of(0xff, 0));
const lease = fc.constantFrom(undefined, undefined, undefined, ...leases, 99n);

/** Most revisions are of now, or lately. `newest`: the revision of both stores, as far as is known. */
const revision = fc.oneof(
  { weight: 6, arbitrary: fc.constant(undefined) },
  { weight: 3, arbitrary: fc.integer({ min: -30, max: 1 }).map((back) => ({ back })) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 5 }) },
);

type Revision = number | { readonly back: number } | undefined;

/** A revision may be relative to the newest one. */
function resolved(asked: Revision, newest: number): number | undefined {
  return typeof asked === "object" ? newest + asked.back : asked;
}

const bound = fc.oneof(
  { weight: 8, arbitrary: fc.constant(undefined) },
  fc.integer({ min: -20, max: 0 }).map((back) => ({ back })),
);

/** A request that depends on the newest revision. */
export type Made = (newest: number) => Buffer;

export const range: fc.Arbitrary<Made> = fc
  .record({
    key: maybeKey,
    end,
    limit: fc.constantFrom(undefined, undefined, 1, 2, 3, -1),
    revision,
    order: fc.constantFrom(undefined, 1, 2),
    target: fc.constantFrom(undefined, undefined, 1, 2, 3, 4),
    serializable: flag,
    keysOnly: flag,
    countOnly: fc.constantFrom(undefined, undefined, undefined, true),
    bounds: fc.tuple(bound, bound, bound, bound),
  })
  .map((each) => (newest) => {
    const [minMod, maxMod, minCreate, maxCreate] = each.bounds.map((one) => resolved(one, newest));
    return encode({
      ...{ 1: each.key, 2: each.end, 3: each.limit, 4: resolved(each.revision, newest) },
      ...{
        5: each.order,
        6: each.target,
        7: each.serializable,
        8: each.keysOnly,
        9: each.countOnly,
      },
      ...{ 10: minMod, 11: maxMod, 12: minCreate, 13: maxCreate },
    });
  });

export const put: fc.Arbitrary<Made> = fc
  .record({
    key: maybeKey,
    value,
    lease,
    previous: flag,
    keepsValue: fc.constantFrom(undefined, undefined, undefined, undefined, true),
    keepsLease: fc.constantFrom(undefined, undefined, undefined, undefined, true),
  })
  .map(
    (each) => () =>
      encode({
        ...{ 1: each.key, 2: each.value.length === 0 ? undefined : each.value, 3: each.lease },
        ...{ 4: each.previous, 5: each.keepsValue, 6: each.keepsLease },
      }),
  );

export const deleteRange: fc.Arbitrary<Made> = fc
  .record({
    key: maybeKey,
    end: fc.oneof({ weight: 5, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: end }),
    previous: flag,
  })
  .map((each) => () => encode({ 1: each.key, 2: each.end, 3: each.previous }));

const compare: fc.Arbitrary<Made> = fc
  .record({
    result: fc.constantFrom(undefined, undefined, 1, 2, 3, 9),
    target: fc.constantFrom(undefined, 1, 2, 3, 4),
    key: maybeKey,
    end: fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: end }),
    union: fc.oneof(
      fc.integer({ min: 0, max: 3 }).map((version) => ({ 4: version })),
      fc.integer({ min: -10, max: 0 }).map((back) => ({ back, field: 5 })),
      fc.integer({ min: -10, max: 0 }).map((back) => ({ back, field: 6 })),
      value.map((bytes) => ({ 7: bytes })),
      lease.map((id) => ({ 8: id ?? 0n })),
      fc.constant({}),
    ),
  })
  .map(({ result, target, key: name, end: last, union }) => (newest) => {
    const relative = "back" in union ? { [union.field]: Math.max(0, newest + union.back) } : union;
    return encode({ 1: result, 2: target, 3: name, ...relative, 64: last });
  });

function operation(depth: number): fc.Arbitrary<Made> {
  const of = (field: number, made: fc.Arbitrary<Made>): fc.Arbitrary<Made> =>
    made.map((make) => (newest) => encode({ [field]: make(newest) }));
  const flat = [of(1, range), of(2, put), of(2, put), of(3, deleteRange)];
  return fc.oneof(...flat, ...(depth > 0 ? [of(4, txn(depth - 1))] : []));
}

export function txn(depth: number): fc.Arbitrary<Made> {
  const operations = fc.array(operation(depth), { maxLength: 3 });
  return fc
    .record({
      compares: fc.array(compare, { maxLength: 2 }),
      success: operations,
      failure: operations,
    })
    .map(
      ({ compares, success, failure }) =>
        (newest) =>
          encode({
            1: compares.map((make) => make(newest)),
            2: success.map((make) => make(newest)),
            3: failure.map((make) => make(newest)),
          }),
    );
}

const compaction: fc.Arbitrary<Made> = fc
  .record({ back: fc.integer({ min: -20, max: 2 }), physical: flag })
  .map(
    ({ back, physical }) =>
      (newest) =>
        encode({ 1: newest + back, 2: physical }),
  );

const grant: fc.Arbitrary<Made> = fc
  .record({ ttl: fc.constantFrom(1_000, 9_000_000_001, 5_000), id: fc.constantFrom(...leases) })
  .map(
    ({ ttl, id }) =>
      () =>
        encode({ 1: ttl, 2: id }),
  );

const ofLease: fc.Arbitrary<Made> = fc.record({ id: fc.constantFrom(...leases, 99n) }).map(
  ({ id }) =>
    () =>
      encode({ 1: id }),
);

/** A call whose request depends on the newest revision. */
export interface MadeCall {
  readonly path: string;
  readonly make: Made;
}

const call = (path: string, made: fc.Arbitrary<Made>): fc.Arbitrary<MadeCall> =>
  made.map((make) => ({ path: `/etcdserverpb.${path}`, make }));

/** Calls that write, and a few that compact. */
export const anyWrite: fc.Arbitrary<MadeCall> = fc.oneof(
  { weight: 10, arbitrary: call("KV/Put", put) },
  { weight: 4, arbitrary: call("KV/DeleteRange", deleteRange) },
  { weight: 4, arbitrary: call("KV/Txn", txn(1)) },
  { weight: 1, arbitrary: call("KV/Compact", compaction) },
);

/** Requests to create a watch, with the id if it is chosen. */
export const watchCreation: fc.Arbitrary<Made> = fc
  .record({
    key: maybeKey,
    end,
    start: fc.oneof(
      { weight: 3, arbitrary: fc.constant(undefined) },
      { weight: 4, arbitrary: fc.integer({ min: -15, max: 3 }).map((back) => ({ back })) },
    ),
    filters: fc.constantFrom(undefined, undefined, undefined, 0, 1),
    previous: flag,
    id: fc.constantFrom(undefined, undefined, undefined, 3, 7),
    fragment: flag,
  })
  .map((each) => (newest) => {
    const start = resolved(each.start, newest);
    return encode({
      1: encode({
        ...{ 1: each.key, 2: each.end, 3: start === undefined ? undefined : Math.max(1, start) },
        ...{ 5: each.filters, 6: each.previous, 7: each.id, 8: each.fragment },
      }),
    });
  });

/** Calls with one response that is the same of every store with the same past. */
export const anyCall: fc.Arbitrary<MadeCall> = fc.oneof(
  { weight: 6, arbitrary: call("KV/Range", range) },
  { weight: 8, arbitrary: call("KV/Put", put) },
  { weight: 3, arbitrary: call("KV/DeleteRange", deleteRange) },
  { weight: 8, arbitrary: call("KV/Txn", txn(2)) },
  { weight: 1, arbitrary: call("KV/Compact", compaction) },
  { weight: 2, arbitrary: call("Lease/LeaseGrant", grant) },
  { weight: 1, arbitrary: call("Lease/LeaseRevoke", ofLease) },
);
