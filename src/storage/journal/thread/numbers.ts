/*
 * What is known of the whole file, in one row that each commit replaces.
 */

/** Distinguishes a table from one in which a row is missing, or which is of another time. */
export interface TableSum {
  /** Number of rows. */
  readonly count: number;
  /** Sum of their `mark`s, modulo 2^32. */
  readonly marks: number;
  /** Sum of their ids, modulo 2^32. */
  readonly ids: number;
}

export interface JournalNumbers {
  readonly historyId: string;
  readonly revision: number;
  /** The oldest revision that can be read at. */
  readonly oldest: number;
  /** Id of the newest record. Records have ids in the order of their changes. */
  readonly lastId: number;
  /** Up to this id nothing is left that no read can see. */
  readonly cleanedId: number;
  /** Id of the newest request. */
  readonly lastRequest: number;
  readonly keys: TableSum;
  readonly leases: TableSum;
  readonly requests: TableSum;
  /** `recordCost` of all records, and of those that are the current state. */
  readonly totalCost: number;
  readonly currentCost: number;
  /** How long the file has been in use, in all processes, in milliseconds. */
  readonly usedMs: number;
}

const modulus = 2 ** 32;

export const emptySum: TableSum = { count: 0, marks: 0, ids: 0 };

export function emptyNumbers(historyId: string): JournalNumbers {
  return {
    historyId,
    revision: 1,
    oldest: 1,
    lastId: 0,
    cleanedId: 0,
    lastRequest: 0,
    keys: emptySum,
    leases: emptySum,
    requests: emptySum,
    totalCost: 0,
    currentCost: 0,
    usedMs: 0,
  };
}

/** The sum with one more row. */
export function plusRow(sum: TableSum, id: number | bigint, mark: number): TableSum {
  return {
    count: sum.count + 1,
    marks: (sum.marks + mark) % modulus,
    ids: (sum.ids + idPart(id)) % modulus,
  };
}

/** The sum with one row less. */
export function minusRow(sum: TableSum, id: number | bigint, mark: number): TableSum {
  return {
    count: sum.count - 1,
    marks: (sum.marks - mark + modulus) % modulus,
    ids: (sum.ids - idPart(id) + modulus) % modulus,
  };
}

/** The columns that make a TableSum of a table. An id has up to 63 bits, which a sum of two may exceed. */
export const sumColumns = `count(*) AS count, coalesce(sum(mark), 0) % ${modulus} AS marks, coalesce(sum(id % ${modulus}), 0) % ${modulus} AS ids`;

export function isSameSum(one: TableSum, other: TableSum): boolean {
  return one.count === other.count && one.marks === other.marks && one.ids === other.ids;
}

function idPart(id: number | bigint): number {
  return Number(typeof id === "bigint" ? id % BigInt(modulus) : id % modulus);
}
