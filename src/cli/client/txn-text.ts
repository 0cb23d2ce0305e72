import { InvalidArgumentError } from "commander";
import { invalidRequest } from "../../base/errors.ts";
import type { Compare, Operation, TransactionRequest } from "../../client/calls/transaction.ts";
import { printableText } from "../output/printable.ts";
import { leaseId, timeToLive, wholeNumber } from "./client-options.ts";

/** The grammar, for the help. */
export const txnGrammar = `
A transaction is a row of these, in any order:
  if KEY exists | absent | mod_revision N | create_revision N | value VALUE
  put KEY VALUE [lease ID | ttl DURATION]
  delete KEY
  in RESOURCE      the resource of what follows, in place of --resource
Words are arguments, or on standard input divided by spaces and line ends. There "..." is a JSON string, for words that
are empty or have spaces, quotes or line ends. Arguments that begin with - go behind --.

Examples:
  watch-fanout txn if a mod_revision 12 put a "$VALUE" delete b
  echo 'if a absent put a "two words"' | watch-fanout txn
  watch-fanout lock job -- sh -c \\
    'watch-fanout txn if "$WATCH_FANOUT_LOCK_KEY" create_revision "$WATCH_FANOUT_FENCING_TOKEN" put state done'
`;

/** Divides text into words. Throws INVALID_REQUEST for a quoted word that is not a JSON string. */
export function wordsIn(text: string): readonly string[] {
  const words = /"(?:[^"\\]|\\[\s\S])*"(?!\S)|\S+/g;
  return Array.from(text.matchAll(words), ({ 0: word, index }) => {
    if (!word.includes('"')) return word;
    try {
      const parsed: unknown = JSON.parse(word);
      if (typeof parsed === "string") return parsed;
    } catch {
      // As below.
    }
    const line = text.slice(0, index).split("\n").length;
    throw malformed(
      `line ${line} has ${printableText(word)}: quotes are around a whole word, which is a JSON string such as "a \\"b\\""`,
    );
  });
}

/** Parses a transaction from its words. Throws INVALID_REQUEST. */
export function parseTransaction(
  words: readonly string[],
  defaultResource: string,
): TransactionRequest {
  const compares: Compare[] = [];
  const operations: Operation[] = [];
  const rest = words.values();
  const next = (after: string, what: string): string => {
    const { value, done } = rest.next();
    if (done === true) throw malformed(`${what} is missing after ${after}`);
    return value;
  };
  let resource = defaultResource;
  for (let verb = rest.next(); verb.done !== true; verb = rest.next()) {
    switch (verb.value) {
      case "in":
        resource = next("in", "a resource");
        break;
      case "if":
        compares.push(compareOf({ resource, key: next("if", "a key") }, next));
        break;
      case "put": {
        const key = next("put", "a key");
        const value = Buffer.from(next(`put ${key}`, "a value"));
        operations.push({ type: "put", resource, key, value });
        break;
      }
      case "lease":
      case "ttl": {
        const put = operations.at(-1);
        const isFree = put?.type === "put" && put.lease === undefined && put.ttlMs === undefined;
        if (!isFree) throw malformed(`${verb.value} follows a put that has neither`);
        const word = next(verb.value, verb.value === "ttl" ? "a duration" : "an id");
        const life =
          verb.value === "ttl"
            ? { ttlMs: parsed("ttl", word, timeToLive) }
            : { lease: parsed("lease", word, leaseId) };
        operations[operations.length - 1] = { ...put, ...life };
        break;
      }
      case "delete":
        operations.push({ type: "delete", resource, key: next("delete", "a key") });
        break;
      default:
        throw malformed(
          `${JSON.stringify(verb.value)} is in the place of if, put, lease, ttl, delete or in`,
        );
    }
  }
  if (compares.length + operations.length === 0) throw malformed("it is empty");
  return { compares, operations };
}

function compareOf(
  name: { readonly resource: string; readonly key: string },
  next: (after: string, what: string) => string,
): Compare {
  const after = `if ${name.key}`;
  const condition = next(after, "a condition");
  const operand = (): string => next(`${after} ${condition}`, "its operand");
  switch (condition) {
    case "exists":
    case "absent":
      return { ...name, exists: condition === "exists" };
    case "mod_revision":
      return { ...name, modRevision: parsed(condition, operand(), wholeNumber) };
    case "create_revision":
      return { ...name, createRevision: parsed(condition, operand(), wholeNumber) };
    case "value":
      return { ...name, value: Buffer.from(operand()) };
    default:
      throw malformed(
        `${JSON.stringify(condition)} is in the place of exists, absent, mod_revision, create_revision or value, after ${after}`,
      );
  }
}

function parsed<T>(what: string, word: string, parse: (word: string) => T): T {
  try {
    return parse(word);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw malformed(`${what} can't be ${JSON.stringify(word)}. ${error.message.slice(0, -1)}`);
  }
}

/** `what` is a clause. */
function malformed(what: string): Error {
  return invalidRequest("transaction", `The transaction can't be read: ${what}. See txn --help.`);
}
