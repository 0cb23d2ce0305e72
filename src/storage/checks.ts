import { invalidRequest, otherHistory, toError } from "../base/errors.ts";
import type {
  DeleteRequest,
  GetRequest,
  HistoryRequest,
  KeyInterval,
  ListRequest,
  PutRequest,
  RevisionRequirement,
  WatchRequest,
} from "./storage.ts";

/** Maximum time to live of an etcd lease, in seconds. */
const maxTtlSeconds = 9_000_000_000;

/** Throws INVALID_REQUEST for an invalid key. */
export function checkKey(key: string): void {
  if (key === "") throw invalidRequest("key", "The key is empty: name the object.");
  checkText("key", key);
}

/** Throws INVALID_REQUEST for text that UTF-8 can't encode. */
export function checkText(field: string, text: string): void {
  if (text.isWellFormed()) return;
  throw invalidRequest(
    field,
    `${JSON.stringify(text)} has half of a surrogate pair, which UTF-8 can't hold: send whole characters.`,
  );
}

/** Throws INVALID_REQUEST unless `value` is an integer of at least `least`. */
export function checkInteger(field: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw invalidRequest(field, `${field} is ${value}: it has to be an integer from ${least} on.`);
}

/** Throws HISTORY_CHANGED if a response is of another history than `known`. An id that is empty or undefined is not known. */
export function checkSameHistory(known: string | undefined, found: string | undefined): void {
  if (!known || !found || known === found) return;
  throw otherHistory(known, found);
}

/** Throws INVALID_REQUEST if the requirement has an invalid revision. */
function checkRequirement(at: RevisionRequirement): void {
  if (at.match === "EXACT" || at.match === "NOT_OLDER_THAN") {
    checkInteger("revision", at.revision, 1);
  }
}

/** Throws INVALID_REQUEST for a get that no Storage can serve. `rawKeys`: whether this one has raw keys. */
export function checkGet(request: GetRequest, rawKeys: boolean = false): void {
  if (!rawKeys) checkKey(request.key);
  checkRequirement(request.at);
}

/** Throws INVALID_REQUEST for a list that no Storage can serve. `rawKeys`: whether this one has raw keys. */
export function checkList(request: ListRequest, rawKeys: boolean = false): void {
  checkText("prefix", request.prefix);
  if (request.interval !== undefined) checkInterval(request.interval);
  if (!rawKeys) checkText("startAfter", request.startAfter ?? "");
  checkInteger("limit", request.limit, 0);
  checkInteger("maxBytes", request.maxBytes ?? 0, 0);
  checkRequirement(request.at);
}

/** Throws INVALID_REQUEST for a history that no Storage can serve. */
export function checkHistoryRequest({ key, upTo, limit, maxBytes }: HistoryRequest): void {
  checkKey(key);
  if (upTo !== undefined) checkInteger("upTo", upTo, 1);
  checkInteger("limit", limit, 1);
  checkInteger("maxBytes", maxBytes, 1);
}

/** Throws INVALID_REQUEST for an interval with a bound that UTF-8 can't encode. */
export function checkInterval(interval: KeyInterval): void {
  checkText("interval.from", interval.from);
  checkText("interval.to", interval.to ?? "");
}

/** Throws INVALID_REQUEST for a put that no Storage can execute. */
export function checkPut(request: PutRequest): void {
  const { key, expectedModRevision: expected, lease = 0n, ttlSeconds } = request;
  checkKey(key);
  if (expected !== undefined) checkInteger("expectedModRevision", expected, 0);
  if (lease < 0n || lease >= 2n ** 63n) {
    throw invalidRequest("lease", `${lease} is not a lease id, which has 63 bits.`);
  }
  if (ttlSeconds === undefined) return;
  checkInteger("ttlSeconds", ttlSeconds, 1);
  if (ttlSeconds > maxTtlSeconds) {
    throw invalidRequest(
      "ttlSeconds",
      `${ttlSeconds} s is longer than a lease can be, which is ${maxTtlSeconds} s.`,
    );
  }
  if (lease !== 0n) {
    throw invalidRequest(
      "ttlSeconds",
      `An object has one lease: lease ${lease}, or a new one of ${ttlSeconds} s, but not both.`,
    );
  }
}

/** Throws INVALID_REQUEST for a delete that no Storage can execute. */
export function checkDelete({ key, expectedModRevision: expected }: DeleteRequest): void {
  checkKey(key);
  if (expected !== undefined) checkInteger("expectedModRevision", expected, 1);
}

/** Throws INVALID_REQUEST for a watch that no Storage can serve. `rawKeys`: whether this one has raw keys. */
export function checkWatch(request: WatchRequest, rawKeys: boolean = false): void {
  const { scope, afterRevision } = request;
  if (!rawKeys && "key" in scope) checkKey(scope.key);
  else if ("prefix" in scope) checkText("prefix", scope.prefix);
  if (afterRevision !== undefined) checkInteger("afterRevision", afterRevision, 0);
}

/** Ends the stream with the error that `check` throws, if it throws one. */
export function endIfRefused(stream: { end(error: Error): void }, check: () => void): void {
  try {
    check();
  } catch (error) {
    stream.end(toError(error));
  }
}
