import { messageOf } from "../../../base/errors.ts";
import type { ThreadFailure } from "../messages.ts";
import { damageText, RecordFault } from "../record.ts";

/** A failure with the kind that the other thread turns it into. `message` is a sentence. */
export class JournalFailure extends Error {
  readonly kind: ThreadFailure["kind"];
  /** Of `too old`. */
  readonly requested: number | undefined;
  readonly oldest: number | undefined;

  constructor(kind: ThreadFailure["kind"], message: string, requested?: number, oldest?: number) {
    super(message);
    this.kind = kind;
    this.requested = requested;
    this.oldest = oldest;
  }
}

/** SQLite's primary result codes (sqlite.org/rescode.html). */
export const sqliteCodes = {
  permission: 3,
  busy: 5,
  locked: 6,
  readOnly: 8,
  ioError: 10,
  corrupt: 11,
  full: 13,
  cantOpen: 14,
  notADatabase: 26,
} as const;

/** SQLite's primary result code of an error; undefined: it is not SQLite's. */
export function sqliteCode(error: unknown): number | undefined {
  const code: unknown = error instanceof Error && "errcode" in error ? error.errcode : undefined;
  return typeof code === "number" ? code & 0xff : undefined;
}

/** Damage of the data file: `what` is a clause. */
export function damaged(file: string, what: string): JournalFailure {
  return new JournalFailure("damaged", damageText(file, what));
}

/** What a read of the data file failed with. */
export function readFailure(file: string, error: unknown): JournalFailure {
  if (error instanceof JournalFailure) return error;
  if (error instanceof RecordFault) return damaged(file, error.message);
  const code = sqliteCode(error);
  if (code === sqliteCodes.corrupt || code === sqliteCodes.notADatabase) {
    return damaged(file, messageOf(error));
  }
  return new JournalFailure("damaged", `The data file ${file} can't be read: ${messageOf(error)}.`);
}
