import { expect, test } from "vitest";
import { writeOptionsOf } from "../../../src/server/services/parse-transact.ts";

test("the id of a request stays the same when a relay passes it on, and only then", () => {
  const { signal } = new AbortController();
  const identity = { source: "none", name: "", groups: [], expiresAt: undefined } as const;
  const idOf = (id: string, via: string | undefined): string | undefined => {
    const request = { validate_only: false, request_id: id, history_id: "" };
    return writeOptionsOf(request, { identity, via, signal }).requestId;
  };
  const atRelay = idOf("1", undefined);
  expect(idOf(atRelay ?? "", "relay")).toBe(atRelay);
  expect(idOf(atRelay ?? "", undefined)).not.toBe(atRelay);
  expect(idOf("1", "relay")).toBe(atRelay);
  expect(idOf("", "relay")).toBe("");
});
