import { invalidRequest } from "../errors.ts";
import type { GetRequest, ListRequest, RevisionRequirement, WatchRequest } from "./storage.ts";

/** Throws INVALID_REQUEST for what can't be a key. */
export function checkKey(key: string): void {
  if (key === "") throw invalidRequest("key", "The key is empty: name the object.");
  checkText("key", key);
}

/** Throws INVALID_REQUEST for what has no UTF-8. */
export function checkText(field: string, text: string): void {
  if (text.isWellFormed()) return;
  throw invalidRequest(
    field,
    `${JSON.stringify(text)} has half of a surrogate pair, which UTF-8 can't hold: send whole characters.`,
  );
}

/** Throws INVALID_REQUEST unless `value` is an integer from `least` on. */
export function checkInteger(field: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw invalidRequest(field, `${field} is ${value}: it has to be an integer from ${least} on.`);
}

/** Throws INVALID_REQUEST if the requirement's revision is not one. */
export function checkRequirement(at: RevisionRequirement): void {
  if (at.match === "EXACT" || at.match === "NOT_OLDER_THAN") {
    checkInteger("revision", at.revision, 1);
  }
}

/** Throws INVALID_REQUEST for a get that no Storage can answer. */
export function checkGet(request: GetRequest): void {
  checkKey(request.key);
  checkRequirement(request.at);
}

/** Throws INVALID_REQUEST for a list that no Storage can answer. */
export function checkList(request: ListRequest): void {
  checkText("prefix", request.prefix);
  checkText("startAfter", request.startAfter ?? "");
  checkInteger("limit", request.limit, 0);
  checkInteger("maxBytes", request.maxBytes ?? 0, 0);
  checkRequirement(request.at);
}

/** Throws INVALID_REQUEST for a watch that no Storage can serve. */
export function checkWatch(request: WatchRequest): void {
  const { scope, afterRevision, predicate, withPrevious } = request;
  if ("key" in scope) checkKey(scope.key);
  else checkText("prefix", scope.prefix);
  if (afterRevision !== undefined) checkInteger("afterRevision", afterRevision, 0);
  if (predicate !== undefined && !withPrevious) {
    throw invalidRequest(
      "withPrevious",
      "A watch by content needs withPrevious: whether an object came or went depends on how it was.",
    );
  }
}
