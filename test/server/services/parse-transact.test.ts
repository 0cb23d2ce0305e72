import { expect, test } from "vitest";
import { writeOptionsOf } from "../../../src/server/services/parse-transact.ts";

test("the id of a request stays the same when a relay passes it on, and only then", () => {
  const { signal } = new AbortController();
  const identity = { source: "none", name: "", groups: [], expiresAt: undefined } as const;
  const idOf = (id: string, via: string | undefined, isLimited = false): string | undefined => {
    const request = { validate_only: false, request_id: id, history_id: "" };
    const call = { identity, via, signal, isLimited: () => isLimited };
    return writeOptionsOf(request, call).requestId;
  };
  const atRelay = idOf("1", undefined);
  expect(idOf(atRelay ?? "", "relay")).toBe(atRelay);
  expect(idOf(atRelay ?? "", undefined)).not.toBe(atRelay);
  // A caller with some rights could take that of another one.
  expect(idOf(atRelay ?? "", "relay", true)).not.toBe(atRelay);
  expect(idOf("1", "relay")).toBe(atRelay);
  expect(idOf("", "relay")).toBe("");
});
